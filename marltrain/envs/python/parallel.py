"""Adapters of environments with simultaneous moves: PettingZoo parallel and single-player Gymnasium environments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

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
from marltrain.errors import EnvError
from marltrain.layout import Array, Space
from marltrain.spec import LONE_PLAYER, EnvSpec, Step


class ParallelAdapter(Adapter):
    """A PettingZoo parallel environment: players may leave early, be absent, and return."""

    @classmethod
    def first_views(cls, env: Any) -> Views:
        """See Adapter."""
        seen, infos = check_reset(env.reset(seed=PROBE_SEED), PARALLEL_RESET)
        return {name: (seen.get(name), infos.get(name)) for name in {**seen, **infos}}

    def __init__(self, env: Any, spec: EnvSpec) -> None:
        """Wrap `env`, an object of the environment that `spec` describes."""
        super().__init__(env, spec)
        self._alive: list[int] = []

    def reset(self, seed: int, out: Step, e: int) -> None:
        """Start an episode with the players in `env.agents`."""
        observations, infos = check_reset(self.env.reset(seed=seed), PARALLEL_RESET)
        self.check_known(observations=observations)
        self._clear(out, e)
        self._alive = self._arrivals((), observations, infos, out, e)
        if not self._alive:
            raise EnvError("reset left env.agents empty: an episode needs at least one player")
        self.write_state(out.state, e)

    def step(self, actions: tuple[Array, ...], out: Step, e: int) -> bool:
        """Step all living players; a player removed from `env.agents` without a flag counts as terminated."""
        names, ports = self.spec.names, self._ports
        chosen = {names[p]: ports[p].action(actions, e) for p in self._alive}
        returned = self.env.step(chosen)
        try:
            observations, rewards, terminated, truncated, infos = returned
        except (TypeError, ValueError):
            raise wrong_step(returned, PARALLEL_STEP) from None
        if not (type(observations) is type(rewards) is type(terminated) is type(truncated) is type(infos) is dict):
            check_mappings(returned, PARALLEL_STEP)
        if not (self._known.issuperset(rewards) and self._known.issuperset(observations)):
            self.check_known(rewards=rewards, observations=observations)
        present = set(self.env.agents)
        staying = []
        for p in self._alive:
            name = names[p]
            reward = rewards.get(name, 0.0)
            if type(reward) not in USUAL:
                check_reward(name, reward)
            out.reward[p, e] = reward
            try:
                flagged = bool(terminated.get(name) or truncated.get(name))
            except (TypeError, ValueError):
                raise bad_flags(name, terminated.get(name), truncated.get(name)) from None
            if flagged or name not in present:
                refuse_text(name, terminated=terminated.get(name), truncated=truncated.get(name))
                cut = truncated.get(name) and not terminated.get(name)
                self._leave(p, bool(cut), observations, infos, out, e)
            else:
                if name not in rewards:
                    raise EnvError(f"player {name!r} is in env.agents but was given no reward")
                self._observe(p, observations, infos, out, e)
                staying.append(p)
        if not present.issubset(chosen):
            over = {name for name in present if terminated.get(name) or truncated.get(name)}
            staying = sorted(staying + self._arrivals(over | chosen.keys(), observations, infos, out, e))
        self._alive = staying
        self.write_state(out.state if staying else out.final_state, e)
        return not staying

    def _arrivals(self, known: Collection[str], observations: Any, infos: Any, out: Step, e: int) -> list[int]:
        """Enter all players of `env.agents` that are not in `known`, and return their indices in order."""
        arrived = sorted(self.place_of(name) for name in self.env.agents if name not in known)
        for p in arrived:
            self.check_actions(p, self.env.action_space(self.spec.names[p]))
            self._ports[p].enter(out, e, turn=True)
            self._observe(p, observations, infos, out, e)
        return arrived

    def _observe(self, p: int, observations: Any, infos: Any, out: Step, e: int) -> None:
        name = self.spec.names[p]
        if name not in observations:
            raise EnvError(f"player {name!r} is in env.agents but was given no observation")
        self._ports[p].write(observations[name], infos.get(name), out, e)

    def _leave(self, p: int, truncated: bool, observations: Any, infos: Any, out: Step, e: int) -> None:
        port, name = self._ports[p], self.spec.names[p]
        (out.truncated if truncated else out.terminated)[p, e] = True
        port.leave(out, e)
        if name in observations:
            port.write_final(observations[name], infos.get(name), out, e)
        elif truncated:
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
            self.write_state(out.final_state, e)
            return True
        port.write(observation, info, out, e)
        self.write_state(out.state, e)
        return False
