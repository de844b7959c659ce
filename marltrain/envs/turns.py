"""Turn-based environments (PettingZoo AEC): one env step is one move.

Rewards are those that `last()` reports: what a player has gathered since its own last move. After every move the
part of it that is new goes into the Step, so that from a player's move to its next they add up to what `last()` says.
A part is closed when PettingZoo would take the player's dead step, or when the episode ends.
"""

from __future__ import annotations

from typing import Any

from marltrain.envs.adapter import PROBE_SEED, Adapter, Probed
from marltrain.errors import EnvError
from marltrain.layout import Array
from marltrain.spec import EnvSpec, Step

_LOOKED_UP = ("agents", "agent_selection", "_cumulative_rewards", "terminations", "truncations", "infos")


def _owner(env: Any, name: str) -> Any:
    """The object in a chain of wrappers that holds an attribute: asking it is ten times as fast as asking the chain."""
    while name not in vars(env) and not hasattr(type(env), name) and hasattr(env, "env"):
        env = env.env
    return env


class TurnAdapter(Adapter):
    """A PettingZoo AEC environment."""

    turn_based = True

    @classmethod
    def probe(cls, env: Any) -> Probed:
        """Return every possible player's name and spaces, after one reset."""
        env.reset(seed=PROBE_SEED)
        masked = any("action_mask" in info for info in env.infos.values())
        return [(name, env.observation_space(name), env.action_space(name), masked) for name in env.possible_agents]

    def __init__(self, env: Any, spec: EnvSpec) -> None:
        """Take over `env`, an object of the environment that `spec` describes."""
        super().__init__(env, spec)
        self._alive: list[int] = []
        self._mover = 0
        self._told = [0.0] * len(spec.players)
        """What the Steps have told of each player's cumulative reward, since its own last move."""

    def reset(self, seed: int, out: Step, e: int) -> None:
        """Start an episode with whoever is in `env.agents`; the first mover's turn."""
        self.env.reset(seed=seed)
        self._owners = {name: _owner(self.env, name) for name in _LOOKED_UP}
        self._clear(out, e)
        self._alive = sorted(self.place_of(name) for name in self._get("agents"))
        if not self._alive:
            raise EnvError("reset left env.agents empty: an episode needs at least one player")
        for p in self._alive:
            self._ports[p].enter(out, e, turn=False)
            self._told[p] = 0.0
        self._give_turn(out, e)
        self.write_state(out.state, e)

    def step(self, actions: tuple[Array, ...], out: Step, e: int) -> bool:
        """Make the mover's move, tell the rewards that it brought, close the parts that it ended."""
        mover = self._mover
        port = self._ports[mover]
        self.env.step(port.action(actions, e))
        self._told[mover] = 0.0
        self._tell_rewards(out, e)
        out.turn[port.group][port.row, e] = False
        if any(self._dead(p) for p in self._alive):
            self.write_state(out.final_state, e)
            self._bury(out, e)
            if not self._alive:
                return True
        self._give_turn(out, e)
        self.write_state(out.state, e)
        return False

    def _get(self, name: str) -> Any:
        return getattr(self._owners[name], name)

    def _dead(self, p: int) -> bool:
        """Whether a player's part is over: flagged, or dropped from `env.agents`."""
        name = self.spec.names[p]
        if self._get("terminations").get(name, True) or self._get("truncations").get(name, True):
            return True
        return name not in self._get("agents")

    def _tell_rewards(self, out: Step, e: int) -> None:
        gathered, told, names = self._get("_cumulative_rewards"), self._told, self.spec.names
        for p in self._alive:
            total = gathered.get(names[p], told[p])
            if total != told[p]:
                out.reward[p, e] = total - told[p]
                told[p] = total

    def _bury(self, out: Step, e: int) -> None:
        """Take the dead steps that are due, and close the part of everybody who is gone after them."""
        truncated = {p: self._see_last(p, out, e) for p in self._alive if self._dead(p)}
        while agents := self._get("agents"):
            p = self.place_of(self._get("agent_selection"))
            if not self._dead(p):
                break
            if p in self._alive and p not in truncated:
                truncated[p] = self._see_last(p, out, e)
            before = len(agents)
            self.env.step(None)
            if len(self._get("agents")) >= before:
                raise EnvError(
                    f"player {self.spec.names[p]!r} is dead, but step(None) did not remove it from env.agents"
                )
        remaining = set(self._get("agents"))
        for p in [p for p in self._alive if self.spec.names[p] not in remaining]:
            (out.truncated if truncated.get(p) else out.terminated)[p, e] = True
            self._ports[p].leave(out, e)
            self._alive.remove(p)

    def _see_last(self, p: int, out: Step, e: int) -> bool:
        """Write a dead player's last observation, before any dead step; return whether it was truncated."""
        name = self.spec.names[p]
        if name not in self._get("agents"):
            self._ports[p].keep_final(out, e)
            return False
        self._ports[p].write_final(self.env.observe(name), self._get("infos").get(name), out, e)
        return bool(self._get("truncations").get(name) and not self._get("terminations").get(name))

    def _give_turn(self, out: Step, e: int) -> None:
        name = self._get("agent_selection")
        mover = self._mover = self.place_of(name)
        if mover not in self._alive:
            self._arrive(mover)
        port = self._ports[mover]
        port.enter(out, e, turn=True)
        port.write(self.env.observe(name), self._get("infos").get(name), out, e)

    def _arrive(self, p: int) -> None:
        """Let a player in that joins an episode under way; it enters with its first turn."""
        if self.spec.names[p] not in self._get("agents"):
            raise EnvError(
                f"agent_selection is {self.spec.names[p]!r}, which is not in env.agents {self._get('agents')}"
            )
        self._alive = sorted([*self._alive, p])
        self._told[p] = 0.0
