"""Turn-based environments (PettingZoo AEC): one env step is one move.

Rewards are the cumulative rewards of PettingZoo's `last()`, counted since the player's own last move. Each Step holds
the change since the previous Step. The sum from a player's move to its next move equals the value of `last()`. For an
environment with a `last()` of its own, see the module `last`.

A player is alive as soon as it is in `env.agents`, also before its first turn. A player leaves the episode when
PettingZoo takes its dead step, or when the episode ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gymnasium import spaces
from pettingzoo.utils import BaseWrapper, OrderEnforcingWrapper

from marltrain.core.errors import EnvError
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs.layers import layers
from marltrain.envs.python.adapter import PROBE_SEED, Adapter, Views
from marltrain.envs.python.returned import bad_flags, check_mappings
from marltrain.envs.python.rewards import USUAL, check_reward, refuse_text

_ATTRIBUTES = ("agents", "agent_selection", "_cumulative_rewards", "terminations", "truncations", "infos")
_FORWARDING = (None, BaseWrapper.__getattr__, OrderEnforcingWrapper.__getattr__)
"""Methods `__getattr__` that return the attribute of the layer inside."""


class _Attributes:
    """Direct access to an AEC environment's attributes: much faster than through the chain of wrappers.

    A wrapper may set its own attribute at any time and then hides the inner one. SuperSuit's `reward_lambda_v0` does so
    in its first step.
    """

    def __init__(self, env: Any) -> None:
        """Initialize with the outermost wrapper, or with an environment without wrappers."""
        self._layers = list(layers(env))
        self._own_lookup = [_has_own_lookup(type(layer)) for layer in self._layers]
        self.find()

    def get(self, name: str) -> Any:
        """Return the attribute of the outermost wrapper that has it."""
        return getattr(self._owners[name], name)

    def refresh(self) -> None:
        """Find the owners again if the number of attributes of the wrappers has changed."""
        if sum(map(len, self._held)) != self._size:
            self.find()

    def find(self) -> None:
        """Find the outermost owner of each attribute."""
        self._held = [getattr(layer, "__dict__", {}) for layer in self._layers]
        self._size = sum(map(len, self._held))
        self._owners = {name: self._owner(name) for name in _ATTRIBUTES}

    def _owner(self, name: str) -> Any:
        for layer, held, own_lookup in zip(self._layers, self._held, self._own_lookup, strict=True):
            if own_lookup or name in held or hasattr(type(layer), name):
                return layer
        return self._layers[-1]


def _has_own_lookup(kind: Any) -> bool:
    """Return whether a class looks up attributes in another way than PettingZoo's wrappers."""
    own_get = kind.__getattribute__ is not object.__getattribute__
    return own_get or getattr(kind, "__getattr__", None) not in _FORWARDING


class TurnAdapter(Adapter):
    """A PettingZoo AEC environment."""

    @classmethod
    def takes_turns(cls, env: Any) -> bool:
        """See Adapter."""
        return True

    @classmethod
    def first_views(cls, env: Any) -> Views:
        """See Adapter; only the first mover has an observation, and only if it is a mapping."""
        env.reset(seed=PROBE_SEED)
        check_mappings([env.infos], ("infos",))
        views = {name: (None, info) for name, info in env.infos.items()}
        return views | ({env.agent_selection: cls._first_view(env)} if env.agents else {})

    @staticmethod
    def _first_view(env: Any) -> tuple[Any, Any]:
        """Return the observation and the info of the first mover."""
        name = env.agent_selection
        seen = env.observe(name) if isinstance(env.observation_space(name), spaces.Dict) else None
        return seen, env.infos.get(name)

    def __init__(self, env: Any, spec: EnvSpec) -> None:
        """Wrap `env`, an object of the environment that `spec` describes."""
        super().__init__(env, spec)
        self._read = _Attributes(env)
        self._get = self._read.get
        self._present: list[Any] = []
        """The last known value of `env.agents`."""
        self._alive: list[int] = []
        self._mover = -1  # before the first reset
        self._counted = [0.0] * len(spec.players)
        """The part of each player's cumulative reward, since its own last move, that earlier Steps hold."""

    def reset(self, seed: int, out: Step, e: int) -> None:
        """Start an episode with the players in `env.agents` and give the first mover the turn."""
        self._clear_rewards()
        self.env.reset(seed=seed)
        self._read.find()
        self._clear(out, e)
        out.start_reward[:, e] = 0
        self._present, self._alive = [], []
        self._enter_arrivals(out, e)
        if not self._alive:
            raise EnvError("reset left env.agents empty: an episode needs at least one player")
        self._start(out, e)
        self.write_state(out.state, e)

    def _start(self, out: Step, e: int) -> None:
        """Write the rewards before any move, and give the first mover the turn."""
        self._write_rewards(out.start_reward, e)
        self._give_turn(out, e)

    def step(self, actions: tuple[Array, ...], out: Step, e: int) -> bool:
        """Apply the mover's action, write the new rewards, and close the players whose part ended."""
        mover = self._mover
        port = self._ports[mover]
        self.env.step(port.action(actions, e))
        self._read.refresh()
        self._counted[mover] = 0.0
        self._enter_arrivals(out, e)
        self._write_rewards(out.reward, e)
        out.turn[port.group][port.row, e] = False
        if any(self._dead(p) for p in self._alive):
            self._remove_dead(out, e)
            self._enter_arrivals(out, e)
            if not self._alive:
                return True
        self._give_turn(out, e)
        self.write_state(out.state, e)
        return False

    def _clear_rewards(self) -> None:
        """Set the previous episode's cumulative rewards to zero.

        A wrapper that sets them in its first step still exposes the old values.
        """
        gathered = None if self._mover < 0 else getattr(self.env, "_cumulative_rewards", None)
        if isinstance(gathered, dict):
            gathered.update(dict.fromkeys(gathered, 0.0))

    def _enter_arrivals(self, out: Step, e: int) -> None:
        """Enter all players of `env.agents` that are not in the episode yet, without the turn."""
        agents = self._get("agents")
        if agents == self._present:
            return
        self._present = list(agents)
        for p in sorted({self.place_of(name) for name in agents}.difference(self._alive)):
            self.check_actions(p, self.env.action_space(self._keys[p]))
            self._ports[p].enter(out, e, turn=False)
            self._counted[p] = 0.0
            self._alive.append(p)
        self._alive.sort()

    def _dead(self, p: int) -> bool:
        """Return whether a player is terminated, truncated or removed from `env.agents`."""
        key, name = self._keys[p], self.spec.names[p]
        terminated, truncated = self._get("terminations").get(key, True), self._get("truncations").get(key, True)
        try:
            over = bool(terminated or truncated)
        except (TypeError, ValueError):
            raise bad_flags(name, terminated, truncated) from None
        if over:
            refuse_text(name, terminated=terminated, truncated=truncated)
            return True
        return key not in self._get("agents")

    def _write_rewards(self, reward: Array, e: int) -> None:
        """Write the living players' new rewards, which no earlier Step holds, into `reward` [P, E]."""
        gathered, counted, keys = self._get("_cumulative_rewards"), self._counted, self._keys
        if not self._known.issuperset(gathered):
            self.check_known(rewards=gathered)
        for p in self._alive:
            total = gathered.get(keys[p], counted[p])
            if type(total) not in USUAL:
                check_reward(self.spec.names[p], total)
            if total != counted[p]:
                reward[p, e] = total - counted[p]
                counted[p] = total

    def _remove_dead(self, out: Step, e: int) -> None:
        """Take the due dead steps, and close the players that took one, or that are then not in `env.agents`."""
        truncated = {p: self._write_final(p, out, e) for p in self._alive if self._dead(p)}
        cut = any(truncated.values())
        self.write_final_state(out, e, truncated=cut)  # before the dead steps
        stepped = set[int]()
        while self._get("agents"):
            p = self.place_of(self._get("agent_selection"))
            if not self._dead(p):
                break
            if p in self._alive and p not in truncated:
                truncated[p] = self._write_final(p, out, e)
                if truncated[p] and not cut:
                    cut = True
                    self.write_final_state(out, e, truncated=True)
            self._take_dead_step(p)
            stepped.add(p)
        self._close_removed(truncated, stepped, out, e)

    def _take_dead_step(self, p: int) -> None:
        """Step a dead player; raises EnvError if it stays dead in `env.agents`.

        It may be there for another part, as in PettingZoo's MultiEpisodeEnv.
        """
        before = len(self._get("agents"))
        self.env.step(None)
        self._read.refresh()
        if len(self._get("agents")) >= before and self._dead(p):
            raise EnvError(f"player {self.spec.names[p]!r} is dead, but step(None) did not remove it from env.agents")

    def _close_removed(self, truncated: Mapping[int, bool], stepped: Collection[int], out: Step, e: int) -> None:
        """Close the players that are not in `env.agents` any more, or that took a dead step and begin another part.

        truncated: whether a player was truncated.  stepped: the players that took a dead step.
        """
        remaining = set(self._get("agents"))
        for p in [p for p in self._alive if p in stepped or self._keys[p] not in remaining]:
            (out.truncated if truncated.get(p) else out.terminated)[p, e] = True
            self._ports[p].leave(out, e)
            self._alive.remove(p)
            self._present = []

    def _write_final(self, p: int, out: Step, e: int) -> bool:
        """Write a dead player's final observation, before any dead step; return whether it was truncated."""
        key = self._keys[p]
        if key not in self._get("agents"):
            self._ports[p].keep_final(out, e)
            return False
        self._ports[p].write_final(self.env.observe(key), self._info(key), out, e)
        return bool(self._get("truncations").get(key) and not self._get("terminations").get(key))

    def _info(self, key: Any) -> Any:
        """Return a player's info; raises EnvError if the environment's infos are no mapping."""
        infos = self._get("infos")
        if type(infos) is not dict:
            check_mappings([infos], ("infos",))
        return infos.get(key)

    def _give_turn(self, out: Step, e: int) -> None:
        p = self._selected()
        key = self._keys[p]
        self._write_turn(p, self.env.observe(key), self._info(key), out, e)

    def _selected(self) -> int:
        """Return the index of the selected player; raises EnvError if it is not in the episode."""
        name = self._get("agent_selection")
        p = self.place_of(name)
        if p not in self._alive:
            raise EnvError(f"agent_selection is {name!r}, which is not in env.agents {self._get('agents')}")
        return p

    def _write_turn(self, p: int, observation: Any, info: Any, out: Step, e: int) -> None:
        """Give a player the turn, and write its observation and legal actions."""
        self._mover = p
        self._ports[p].enter(out, e, turn=True)
        self._ports[p].write(observation, info, out, e)
