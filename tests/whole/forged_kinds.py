"""Kinds of runs whose checkpoints are forged: what they store differs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

import marltrain as mt
from tests.gymnasium_toys import BitFlipping
from tests.memory_games import Recall
from tests.toys import Crowd, Identity, Relay
from tests.whole.resuming import CASES, SMALL, Case, dqn, ppo, replay

POLE, SPREAD = "marltrain/CartPole-v1", "marltrain/simple_spread_v3"
FOUR, LEDUC, TICTACTOE = "marltrain/connect_four_v3", "marltrain/leduc_poker_v1", "marltrain/tictactoe_v3"
FAST: dict[str, Any] = {"jit_compile": True}
OFTEN = {"n_step": 1, "batch_size": 2, "learning_starts": 0, "update_per_step": 1.0}
"""So that updates fall into compiled calls: single steps, and few rows of many."""
GRU = mt.GRU((4,), units=5, sequence_length=3)
LSTM = mt.LSTM((), units=4, sequence_length=3)
TEAM: dict[str, Any] = {"team_reward": "sum"}
PRIORITIES = mt.Prioritized(beta=mt.linear(0.4, 1.0, 200))


class Masked(ParallelEnv):
    """Three players with legal moves and spaces of two kinds; c dies after two of five steps, b joins every other time.

    All get one reward, the number of moves with the lowest number.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "masked"}

    def __init__(self) -> None:
        self.possible_agents = ["a", "b", "c"]
        seen = spaces.Box(0, 9, (2,), np.float32)
        masks = {name: spaces.Box(0, 1, (count,), np.int8) for name, count in (("a", 3), ("b", 3), ("c", 4))}
        self._seen = {name: spaces.Dict({"observation": seen, "action_mask": mask}) for name, mask in masks.items()}
        self._acts = {name: spaces.Discrete(mask.shape[0]) for name, mask in masks.items()}

    def observation_space(self, agent):
        return self._seen[agent]

    def action_space(self, agent):
        return self._acts[agent]

    def reset(self, seed=None, options=None):
        self.agents, self.t = [name for name in "abc" if name != "b" or not (seed or 0) % 2], 0
        return self._shown(self.agents), {name: {} for name in self.agents}

    def step(self, actions):
        self.t += 1
        names, reward = self.agents, float(sum(int(action) == 0 for action in actions.values()))
        over = {name: self.t == 5 or (name == "c" and self.t == 2) for name in names}
        self.agents = [name for name in names if not over[name]]
        return (
            self._shown(names),
            dict.fromkeys(names, reward),
            over,
            dict.fromkeys(names, False),
            {n: {} for n in names},
        )

    def _shown(self, names):
        masks = {name: np.ones(self._acts[name].n, np.int8) for name in names}
        for name in names:
            masks[name][(self.t + 1) % 3] = 0
        return {name: {"observation": np.array([self.t, "abc".index(name)], np.float32), "action_mask": masks[name]}
                for name in names}  # fmt: skip


def _native(env: str, kind: Any, learning: tuple[int, ...], **more: Any) -> Case:
    return Case(env, lambda: kind(env, **more), learning=learning, settings={"update_freq": 6}, at=150)


def _team(algo: str, *, at: int = 63, learning: tuple[int, ...] = (1, 0, 1), **more: Any) -> Case:
    """An off-policy team on the game of deaths and absences."""
    return Case(Crowd, lambda: replay(algo, Crowd, **more), {"length": 5}, TEAM, learning=learning, at=at)


def _rollouts(algo: str, **more: Any) -> Case:
    """An on-policy team on the game of deaths and absences."""
    result = {"network": SMALL, "seed": 1, **more}
    return Case(Crowd, lambda: mt.make_agents(algo, Crowd, **result), {"length": 5}, TEAM, learning=(1, 1, 0))


def _remembering(**memory: Any) -> Case:
    """Q-learning by turns, with deaths, from a memory with settings of its own."""
    return Case(Relay, lambda: dqn(Relay, memory=mt.Replay(60, **memory), capacity=60), learning=(1, 0, 1), at=87)


def _goals(algo: str = "dqn", **own: Any) -> Case:
    return Case(BitFlipping, lambda: replay(algo, BitFlipping, **own), learning=(1,))


def _cloned(algo: str) -> Case:
    """Agents that learn from demonstrations."""

    def agents() -> list[mt.Agent]:
        experts = [mt.FunctionAgent(lambda symbol: symbol) for _ in range(2)]
        shown = mt.demonstrations(Identity, experts, episodes=2, player="player_0")
        return mt.make_agents(algo, Identity, demonstrations=shown, seed=1, network=SMALL)

    return Case(Identity, agents)


KINDS: dict[str, Case] = {
    **{name: CASES[name] for name in (
        "ppo", "dqn", "ppo by turns", "dqn by turns", "ragged", "mixed", "line-up", "boxes and pictures", "frames",
        "frames on-policy", "agent of one's own", "dqn shares memory", "gymnasium", "masks change", "custom",
        "tianshou", "mappo", "mappo by turns", "qmix", "matd3", "gru by turns", "lstm from a memory", "sac with a gru",
        "td3", "sac by turns", "acer and trpo by turns", "one agent in two seats", "ppo normalizes", "noisy", "league",
    )},
    "compiled dqn": _native(POLE, dqn, (1,), **FAST, **OFTEN),
    "compiled dqn of three": _native(SPREAD, dqn, (1, 1, 1), **FAST, **OFTEN),
    "compiled ppo": _native(POLE, ppo, (1,), **FAST),
    "compiled ppo of three": _native(SPREAD, ppo, (1, 1, 1), **FAST),
    "compiled ppo by turns": _native(FOUR, ppo, (1, 1), **FAST),
    "compiled dqn by turns": _native(LEDUC, dqn, (1, 1), **FAST, **OFTEN),
    "compiled dqn by priorities": _native(LEDUC, dqn, (1, 1), memory=mt.Replay(60, prioritized=PRIORITIES),
                                          **FAST, **OFTEN),
    "n-step by turns": _native(FOUR, dqn, (1, 1)),
    "n-step compiled by turns": _native(TICTACTOE, dqn, (1, 1), **FAST),
    "progress": Case("gymnasium/CartPole-v1", lambda: ppo("gymnasium/CartPole-v1"), learning=(1,),
                   settings={"progress": True, "num_train_envs": 4}, at=160),
    "overlap": Case(POLE, lambda: dqn(POLE), learning=(1,), settings={"collect": "overlap"}),
    "tensorflow": CASES["tensorflow"],

    "wqmix": _team("wqmix"),
    "central wqmix with masks": Case(Masked, lambda: replay("wqmix", Masked, weighting="centralized"),
                                     settings=TEAM, learning=(1, 1, 1)),
    "vdn of three masked players": Case(Masked, lambda: replay("vdn", Masked), settings=TEAM, learning=(1, 1, 1)),
    "maddpg": _team("maddpg"),
    "masac": _team("masac", learning=(1, 1, 1)),
    "mappo with masks": Case(Masked, lambda: ppo(Masked, algo="mappo"), settings=TEAM, learning=(1, 0, 1)),
    "coma": _rollouts("coma"),
    "vdac": _rollouts("vdac"),
    "maa2c": _rollouts("maa2c"),
    "two teams": Case(Masked, lambda: replay("matd3", Masked, teams={"one": ["a", "c"], "other": ["b"]}),
                      learning=(1, 1, 1)),
    "compiled qmix": Case(SPREAD, lambda: replay("qmix", SPREAD, **FAST, learning_starts=0, update_per_step=1.0),
                          settings={"update_freq": 6, **TEAM}, learning=(1, 1, 1), at=150),
    "compiled mappo": _native(SPREAD, ppo, (1, 1, 1), algo="mappo", **FAST),

    "qmix of sequences": _team("qmix", network=GRU),
    "mappo of sequences": _rollouts("mappo", network=GRU, epochs=2, minibatches=2),
    "burn-in": Case(Recall, lambda: replay("dqn", Recall, network=LSTM, burn_in=1)),

    "priorities": _remembering(prioritized=PRIORITIES, n_step=3),
    "priorities by errors": _remembering(prioritized=mt.Prioritized(initial="error"), n_step=3),
    "priorities of frames": Case(CASES["frames"].env, lambda: dqn(CASES["frames"].env, {"size": 9},
        network=mt.CNN((8,)), memory=mt.Replay(60, 3, mt.Prioritized())), {"size": 9, "length": 11},
        {"test_freq": 99}, learning=(1,), at=63, steps=120),
    "rollouts by priorities": Case(Relay, lambda: ppo(Relay, memory=mt.Replay(60, prioritized=mt.Prioritized()),
                                                      sequence_length=3), learning=(1, 1, 0), at=84),
    "windows": _remembering(prioritized=PRIORITIES, window=mt.linear(0.5, 1.0, 100), half_life=30.0),
    "effective share": _remembering(prioritized=PRIORITIES, effective_share=0.6, effective_low=0.3),
    "cleared": _remembering(clear_every=50),

    "hindsight": _goals(memory=mt.Replay(60, 3, mt.Prioritized(), mt.Hindsight(), window=0.8)),
    "hindsight of the last row": _goals("sac", memory=mt.Replay(60, hindsight=mt.Hindsight("final"))),
    "hindsight of any row": _goals(memory=mt.Replay(60, hindsight=mt.Hindsight("random"))),
    "hindsight of the episode": _goals(memory=mt.Replay(60, hindsight=mt.Hindsight("episode"))),
    "triplets": _goals("trl"),

    "gail": _cloned("gail"),
    "bc": _cloned("bc"),
}  # fmt: skip
