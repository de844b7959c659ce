"""Adapters of environments with simultaneous moves: PettingZoo parallel and single-player Gymnasium environments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper

from marltrain.core.errors import EnvError
from marltrain.core.layout import Array, Space
from marltrain.core.spec import LONE_PLAYER, EnvSpec, Step
from marltrain.envs.layers import layers, metadata_of
from marltrain.envs.python.adapter import PROBE_SEED, Adapter, Views
from marltrain.envs.python.returned import (
    PARALLEL_RESET,
    PARALLEL_STEP,
    bad_flags,
    check_info,
    check_mappings,
    check_reset,
    wrong_step,
)
from marltrain.envs.python.rewards import USUAL, check_reward, refuse_text


class ParallelAdapter(Adapter):
    """A PettingZoo parallel environment: players may leave early, be absent, and return.

    In a game that takes turns, a player whose mask allows no action waits: no action is sent for it.
    """

    @classmethod
    def first_views(cls, env: Any) -> Views:
        """See Adapter."""
        seen, infos = check_reset(env.reset(seed=PROBE_SEED), PARALLEL_RESET)
        return {name: (seen.get(name), infos.get(name)) for name in {**seen, **infos}}

    @classmethod
    def takes_turns(cls, env: Any) -> bool:
        """See Adapter; an environment says so in its metadata, or is PettingZoo's `turn_based_aec_to_parallel`."""
        return metadata_of(env).get("turn_based") is True or any(
            isinstance(one, turn_based_aec_to_parallel_wrapper) for one in layers(env)
        )

    def __init__(self, env: Any, spec: EnvSpec) -> None:
        """Wrap `env`, an object of the environment that `spec` describes."""
        super().__init__(env, spec)
        self._alive: list[int] = []
        self._waiting: set[int] = set()
        """The living players that must not act now."""

    def reset(self, seed: int, out: Step, e: int) -> None:
        """Start an episode with the players in `env.agents`."""
        observations, infos = check_reset(self.env.reset(seed=seed), PARALLEL_RESET)
        self.check_known(observations=observations)
        self._clear(out, e)
        self._waiting.clear()
        self._alive = self._arrivals((), observations, infos, out, e)
        if not self._alive:
            raise EnvError("reset left env.agents empty: an episode needs at least one player")
        self._check_waiting()
        self.write_state(out.state, e)

    def step(self, actions: tuple[Array, ...], out: Step, e: int) -> bool:
        """Step all living players; a player removed from `env.agents` without a flag counts as terminated."""
        names, keys = self.spec.names, self._keys
        chosen = {keys[p]: self._ports[p].action(actions, e) for p in self._alive if p not in self._waiting}
        returned = self._step(chosen)
        try:
            observations, rewards, terminated, truncated, infos = returned
        except (TypeError, ValueError):
            raise wrong_step(returned, PARALLEL_STEP) from None
        if not (
            isinstance(observations, dict) and isinstance(rewards, dict) and isinstance(terminated, dict)
            and isinstance(truncated, dict) and isinstance(infos, dict)
        ):  # fmt: skip
            check_mappings(returned, PARALLEL_STEP)
        if not (self._known.issuperset(rewards) and self._known.issuperset(observations)):
            self.check_known(rewards=rewards, observations=observations)
        present = set(self.env.agents)
        staying = []
        for p in self._alive:
            key = keys[p]
            reward = rewards.get(key, 0.0)
            if type(reward) not in USUAL:
                check_reward(names[p], reward)
            out.reward[p, e] = reward
            try:
                flagged = bool(terminated.get(key) or truncated.get(key))
            except (TypeError, ValueError):
                raise bad_flags(names[p], terminated.get(key), truncated.get(key)) from None
            if flagged or key not in present:
                refuse_text(names[p], terminated=terminated.get(key), truncated=truncated.get(key))
                cut = truncated.get(key) and not terminated.get(key)
                self._leave(p, bool(cut), observations, infos, out, e)
            else:
                if key not in rewards:
                    raise EnvError(f"player {names[p]!r} is in env.agents but was given no reward")
                self._observe(p, observations, infos, out, e)
                staying.append(p)
        if not present.issubset(chosen):
            before = {keys[p] for p in self._alive}
            over = {key for key in present if terminated.get(key) or truncated.get(key)}
            staying = sorted(staying + self._arrivals(over | before, observations, infos, out, e))
        self._alive = staying
        if not staying:
            self.write_final_state(out, e, truncated=bool(out.truncated[:, e].any()))
            return True
        self._check_waiting()
        self.write_state(out.state, e)
        return False

    def _step(self, chosen: dict[Any, Any]) -> Any:
        """Step the environment; raises EnvError, with the remedy, if it needs an action of a player that waits."""
        try:
            return self.env.step(chosen)
        except KeyError as error:
            waiting = [self.spec.names[p] for p in sorted(self._waiting)]
            if not waiting or error.args not in [(self._keys[p],) for p in self._waiting]:
                raise
            raise EnvError(
                f"step raised KeyError: {error}: no action is sent for {', '.join(map(repr, waiting))}, because the "
                "action_mask allows none. Read the actions of players that can act only, or allow an action that does "
                "nothing"
            ) from error

    def _check_waiting(self) -> None:
        """Raise EnvError if all living players wait."""
        if self._waiting and len(self._waiting) == len(self._alive):
            names = ", ".join(repr(self.spec.names[p]) for p in self._alive)
            raise EnvError(
                f"the action_mask of every living player ({names}) allows no action: allow an "
                "action of one player at least, or end the episode"
            )

    def _arrivals(self, known: Collection[Any], observations: Any, infos: Any, out: Step, e: int) -> list[int]:
        """Enter all players of `env.agents` that are not in `known`, and return their indices in order."""
        arrived = sorted(self.place_of(key) for key in self.env.agents if key not in known)
        for p in arrived:
            self.check_actions(p, self.env.action_space(self._keys[p]))
            self._ports[p].enter(out, e, turn=True)
            self._observe(p, observations, infos, out, e)
        return arrived

    def _observe(self, p: int, observations: Any, infos: Any, out: Step, e: int) -> None:
        """Write the observation of a living player, which waits if no action is legal."""
        key = self._keys[p]
        if key not in observations:
            raise EnvError(f"player {self.spec.names[p]!r} is in env.agents but was given no observation")
        acts = self._ports[p].write(observations[key], infos.get(key), out, e)
        if self.spec.turn_based and acts == (p in self._waiting):
            self._ports[p].enter(out, e, turn=acts)
            self._waiting ^= {p}

    def _leave(self, p: int, truncated: bool, observations: Any, infos: Any, out: Step, e: int) -> None:
        port, key = self._ports[p], self._keys[p]
        (out.truncated if truncated else out.terminated)[p, e] = True
        port.leave(out, e)
        self._waiting.discard(p)
        if key in observations:
            port.write_final(observations[key], infos.get(key), out, e)
        elif truncated:
            name = self.spec.names[p]
            raise EnvError(f"player {name!r} was truncated without a last observation to bootstrap from")
        else:
            port.keep_final(out, e)


class GymnasiumAdapter(Adapter):
    """A Gymnasium environment: one player, which is always present."""

    @classmethod
    def first_views(cls, env: Any) -> Views:
        """See Adapter."""
        observation, info = check_reset(env.reset(seed=PROBE_SEED))
        return {LONE_PLAYER: (observation, info)}

    @classmethod
    def players_of(cls, env: Any) -> list[tuple[str, Space, Space]]:
        """See Adapter."""
        return [(LONE_PLAYER, env.observation_space, env.action_space)]

    def reset(self, seed: int, out: Step, e: int) -> None:
        """Start an episode."""
        observation, info = check_reset(self.env.reset(seed=seed))
        self.check_actions(0, self.env.action_space)
        self._ports[0].enter(out, e, turn=True)
        self._ports[0].write(observation, info, out, e)
        self.write_state(out.state, e)

    def step(self, actions: tuple[Array, ...], out: Step, e: int) -> bool:
        """Step the player; if both flags are set, the episode counts as terminated."""
        port = self._ports[0]
        returned = self.env.step(port.action(actions, e))
        try:
            observation, reward, terminated, truncated, info = returned
        except (TypeError, ValueError):
            raise wrong_step(returned) from None
        if type(info) is not dict:
            check_info(info)
        if type(reward) not in USUAL:
            check_reward(LONE_PLAYER, reward)
        out.reward[0, e] = reward
        try:
            over = bool(terminated or truncated)
        except (TypeError, ValueError):
            raise bad_flags(LONE_PLAYER, terminated, truncated) from None
        if over:
            refuse_text(LONE_PLAYER, terminated=terminated, truncated=truncated)
            (out.terminated if terminated else out.truncated)[0, e] = True
            port.write_final(observation, info, out, e)
            self.write_final_state(out, e, truncated=not terminated)
            return True
        port.write(observation, info, out, e)
        self.write_state(out.state, e)
        return False
