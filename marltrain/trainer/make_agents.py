"""make_agents: one agent per player, by one algorithm for all or by one for each."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marltrain.core.errors import AgentError, ConfigError, MarlTrainError, did_you_mean, error_text, shown
from marltrain.core.seeds import child_seed, chosen_seed
from marltrain.core.settings import checked_arguments, setting, validate
from marltrain.core.spec import EnvSpec, PlayerSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.policies.agents.registry import ALGORITHMS, agent_class
from marltrain.policies.backends.frameworks import framework_of
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.policies.memory.joint_actions import joint_action_size
from marltrain.policies.memory.states import OWN, state_size
from marltrain.trainer.reporting.preparation import shown_if_slow
from marltrain.trainer.seats.by_player import by_player, check_keys
from marltrain.trainer.seats.teams import joint_teams

Kind = str | type[Agent]
Asked = Kind | tuple[Kind, Mapping[str, Any]]
"""An entry: a registered name or a class, or a pair of either and its settings."""
RANDOM = "random"
TEAM, TEAM_SIZE = "team", "team_size"
"""Names of the settings of agents that learn together, see `algorithms.joint.TeamSettings`."""
STATE_SIZE = "state_size"
"""Name of the setting for the number of values of the global state, see `Algorithm.state_kind`."""
IDENTITY = "identity"
"""Name of the argument of agents for the players that a shared agent tells apart."""
JOINT_ACTION_SIZE = "joint_action_size"
"""Name of the setting for the number of values of a joint action, see `Settings.reads_joint_actions`."""
OF_ENV = ("observation_space", "action_space", "frame_stack", IDENTITY)
"""Arguments of an agent that come from the environment."""


@dataclass(frozen=True)
class _Sharing:
    share: bool = setting(doc="players with equal spaces get the same agent")
    identify: bool = setting(doc="the one-hot of the player is added to the observations of a shared agent")

    def __post_init__(self) -> None:
        validate(self, "make_agents")
        if self.identify and not self.share:
            raise ConfigError(
                "make_agents: identify=True tells the players of a shared agent apart, and with share=False each "
                "player has an agent of its own: add share=True, or leave identify out"
            )


@dataclass(frozen=True, eq=False)
class _Entry:
    """An algorithm and its settings, for one or several players; where: its name in messages."""

    where: str
    algorithm: Any
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, where: str, given: Any) -> _Entry:
        """Return an entry for a name, an agent class or (either, settings); raises ConfigError for other values."""
        algorithm, settings = given if _is_pair(given) else (given, {})
        entry = cls(where, algorithm, settings)
        entry._check_algorithm()
        entry._check_settings()
        return entry

    def _check_algorithm(self) -> None:
        algorithm, known = self.algorithm, [*ALGORITHMS, RANDOM]
        if isinstance(algorithm, Agent):
            raise ConfigError(
                f"{self.where}: {shown(algorithm)} is an agent already: give its class, or put the agent itself into "
                "the list that make_agents returns"
            )
        if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
            raise ConfigError(
                f"{self.where}: {algorithm.__name__} is an Algorithm, which an agent class holds: define one, class "
                f"Mine(marltrain.LearningAgent): algorithm_class = {algorithm.__name__}, and give Mine"
            )
        is_agent = isinstance(algorithm, type) and issubclass(algorithm, Agent)
        if is_agent and issubclass(algorithm, LearningAgent) and not hasattr(algorithm, "algorithm_class"):
            raise ConfigError(
                f"{self.where}: {algorithm.__name__} names no algorithm: set algorithm_class in its class"
            )
        if not is_agent and not (isinstance(algorithm, str) and algorithm in known):
            raise ConfigError(
                f"{self.where}: no algorithm is called {shown(algorithm)}.{did_you_mean(algorithm, known)} There are "
                f"{', '.join(known)}, and any class of agents"
            )

    def _check_settings(self) -> None:
        if self.algorithm == RANDOM and self.settings:
            raise ConfigError(
                f"{self.where}: a 'random' agent has no settings, got {', '.join(map(str, self.settings))}"
            )
        for given in OF_ENV:
            if given in self.settings:
                raise ConfigError(f"make_agents: {given} is set by the environment: leave it out")
        if "seed" in self.settings:
            raise ConfigError(
                f"{self.where}: seed is an argument of make_agents: each player has its own seed below it"
            )

    @property
    def made_by(self) -> Any:
        """The agent class."""
        kind = RandomAgent if self.algorithm == RANDOM else self.algorithm
        return agent_class(kind) if isinstance(kind, str) else kind

    @property
    def state_kind(self) -> str | None:
        """The kind of global state that the agents read, whose size they do not know yet; None: no state."""
        if not issubclass(self.made_by, LearningAgent) or STATE_SIZE in self.settings:
            return None
        kind: str | None = self.made_by.algorithm_class.Settings.state_kind(self.settings)
        return kind

    @property
    def together(self) -> bool:
        """Whether the agents learn together in a team."""
        kind = self.made_by
        return issubclass(kind, LearningAgent) and issubclass(kind.algorithm_class, JointAlgorithm)

    def sizes(self, spec: EnvSpec) -> dict[str, int]:
        """Return the settings for sizes that only the environment tells, and that are not given."""
        kind, made_by = self.state_kind, self.made_by
        sizes = {} if kind is None else {STATE_SIZE: state_size(spec, kind)}
        if issubclass(made_by, LearningAgent) and made_by.algorithm_class.Settings.reads_joint_actions:
            sizes[JOINT_ACTION_SIZE] = joint_action_size(spec)
        return sizes

    def make(self, player: PlayerSpec, spec: EnvSpec, **common: Any) -> Agent:
        """Make the agent of a player; errors name the player.

        spec: of the environment.  common: seed, backend, identity and the settings of a team.
        """
        made_by = self.made_by
        offered = {
            "observation_space": player.observation_space, "action_space": player.action_space,
            "frame_stack": player.layout.stack, **self.sizes(spec), **common,
        }  # fmt: skip
        if not issubclass(made_by, LearningAgent):  # a custom class gets only the arguments that it names
            taken = inspect.signature(made_by).parameters
            if common.get(IDENTITY) and IDENTITY not in taken and made_by is not RandomAgent:
                raise ConfigError(
                    f"player {player.name!r}: identify=True adds the player to the observations of agents, and "
                    f"{made_by.__name__} takes no argument identity: leave identify out"
                )
            offered = {name: value for name, value in offered.items() if name in taken}
        try:
            result: Agent = made_by(**{**offered, **self.settings})
        except AgentError as error:
            raise AgentError(f"player {player.name!r}: {error}{self._one_model(spec)}") from error
        except MarlTrainError as error:
            raise type(error)(f"player {player.name!r}: {error}") from error
        except Exception as error:  # user code, such as a network, may raise any exception
            raise AgentError(
                f"player {player.name!r}: its {made_by.__name__} cannot be made: {error_text(error)}. Look at the "
                f"settings given for it: {', '.join(map(str, self.settings)) or 'none'}"
            ) from error
        if isinstance(result, LearningAgent):
            result.masked = result.masked or player.masked
        return result

    def _one_model(self, spec: EnvSpec) -> str:
        """Return a sentence if the entry gives one model to players of different spaces, else ""."""
        models = [key for key, value in self.settings.items() if key.endswith("network") and framework_of(value)]
        if not models or len(spec.groups) == 1:
            return ""
        kinds = "; ".join(", ".join(spec.names[p] for p in group.players) for group in spec.groups)
        own = ", ".join(f'"{spec.names[group.players[0]]}": (..., {{"{models[0]}": ...}})' for group in spec.groups[:2])
        return (
            f". The players have different spaces ({kinds}), and one model fits those of equal spaces: give each its "
            f"own, make_agents({{{own}}}, ...), or a network that is built for each, such as mt.MLP((64, 64))"
        )


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping)


@checked_arguments
def make_agents(
    name: Asked | Mapping[str, Asked] | Sequence[Asked],
    env: Any,
    *,
    env_args: Mapping[str, Any] | None = None,
    share: bool = False,
    identify: bool = False,
    teams: Mapping[str, Sequence[str]] | str | None = None,
    backend: str = "torch",
    seed: int | None = None,
    **hyper: Any,
) -> list[Agent]:
    """Make one agent per player of an environment, in the players' order.

    name: "random", the name of an algorithm ("ppo", "dqn", "sac", ...; all are in `policies/agents/registry.py`) or an
      agent class, for all players. For different agents, either a mapping from players' names or shell patterns
      ("hare_*", case-sensitive, see `fnmatch`) to entries, or a list of entries in the players' order. An entry is a
      name, a class, or a pair (name or class, settings). A player's name takes precedence over patterns; every player
      must match exactly one key, and every key must match a player. A class that is not a `LearningAgent` gets those of
      spaces, seed and backend that its constructor names.
    env, env_args: as for `DecentralizedTrainer`.
    share: players with equal spaces (and the same entry of a mapping) get the same agent.
    identify: with `share`, the one-hot of the observing player among all players of equal spaces is added to the
      observations of a shared agent, as the last values of their vector. A player whose spaces no other has gets none.
    teams: teams of agents that learn together ("vdn", "qmix", ...): None for one team of all of them, "prefix" for a
      team of each prefix of names ("adversary" of "adversary_0"), or names of teams with their players, by name or
      pattern. Each agent's setting `team` names its team.
    backend: framework of the learning agents, "torch" by default.
    seed: seed from which each agent's seed is derived, by the player's place; drawn if None.
    hyper: settings of every entry's algorithm; an entry's own settings take precedence.
    Raises ConfigError for an unknown algorithm, setting or player, and AgentError for a network that does not fit. Each
    names the player.
    """
    from marltrain.envs import probe, resolve

    sharing = _Sharing(share=share, identify=identify)
    keyed = _keyed(name, hyper)
    source = resolve(env, env_args)
    seats = _seats(keyed, spec := probe(source), share=sharing.share)
    if any(entry.state_kind == OWN for entry in seats):
        spec = probe(source, with_state=True)
    in_team = _team_settings(seats, teams, spec)
    seed = chosen_seed(seed, "make_agents")
    result: dict[tuple[int, str | None, int], Agent] = {}
    agents: list[Agent] = []
    for i, player in enumerate(shown_if_slow(spec.players, "making agents")):
        entry = seats[i]
        kind = id(entry), in_team[i].get(TEAM), spec.place[i][0]
        if not sharing.share or kind not in result:
            identity = _identity(spec, spec.place[i][0]) if sharing.identify else ()
            result[kind] = entry.make(
                player, spec, backend=backend, seed=child_seed(seed, "agent", i), identity=identity, **in_team[i]
            )
        agents.append(result[kind])
    return agents


def _identity(spec: EnvSpec, group: int) -> tuple[str, ...]:
    """Return the names of a group's players, whom a shared agent tells apart; none for a single player."""
    players = spec.groups[group].players
    return tuple(spec.names[player] for player in players) if len(players) > 1 else ()


def _team_settings(
    seats: Sequence[_Entry], teams: Mapping[str, Sequence[str]] | str | None, spec: EnvSpec
) -> list[dict[str, Any]]:
    """Return the settings `team` and `team_size` of each player whose agent learns together with others; else none."""
    together = [entry.together for entry in seats]
    if teams is not None and (given := next((entry for entry in seats if TEAM in entry.settings), None)):
        raise ConfigError(
            f"make_agents: teams={shown(teams)} and {TEAM}={given.settings[TEAM]!r}: give only one of them"
        )
    named = joint_teams(teams, spec.names, together)
    teams_of = [(entry.made_by, entry.settings.get(TEAM, team)) for entry, team in zip(seats, named, strict=True)]
    sizes = Counter(team for team, joint in zip(teams_of, together, strict=True) if joint)
    return [
        {TEAM: team[1], TEAM_SIZE: sizes[team]} if joint else {} for team, joint in zip(teams_of, together, strict=True)
    ]


_Keyed = _Entry | Mapping[str, _Entry] | Sequence[_Entry]


def _keyed(name: Any, hyper: Mapping[str, Any]) -> _Keyed:
    """Return the argument `name` as one entry, entries by name or pattern, or a list of entries."""

    def entry(where: str, given: Any) -> _Entry:
        own = _Entry.of(where, given)
        return _Entry.of(where, (own.algorithm, {**hyper, **own.settings}))

    if isinstance(name, Mapping):
        check_keys(name, "name")
        return {key: entry(f"name[{key!r}]", given) for key, given in name.items()}
    if isinstance(name, list | tuple) and not _is_pair(name):
        return [entry(f"name[{i}]", given) for i, given in enumerate(name)]
    return entry("name", name)


def _seats(keyed: _Keyed, spec: EnvSpec, *, share: bool) -> list[_Entry]:
    """Return each player's entry; raises ConfigError unless every player has exactly one."""
    names = spec.names
    if isinstance(keyed, _Entry):
        return [keyed] * len(names)
    if isinstance(keyed, Mapping):
        return list(by_player(keyed, spec, "name").values())
    if share:
        raise ConfigError("share=True: a list has one entry per player. Give a mapping, whose entries are shared")
    if len(keyed) != len(names):
        raise ConfigError(
            f"name: {spec.name} has {len(names)} players ({', '.join(names)}), got a list of {len(keyed)}. Give one "
            "entry per player, or a mapping by players' names"
        )
    return list(keyed)
