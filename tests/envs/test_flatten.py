"""Images as vectors, in environments of the three interfaces, under and over stacked frames."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseWrapper, parallel_to_aec

import marltrain as mt
from marltrain.core.errors import ConfigError, EnvError
from marltrain.envs import DummyVectorEnv, SubprocVectorEnv, check_env, probe, resolve
from tests.envs.driving import act

BOARD = spaces.Box(0, 9, (2, 3), np.uint8)
SEEN: Any = spaces.Dict(
    {
        "boards": spaces.Tuple([BOARD, spaces.Box(0, 1, (2, 2), np.float32)]),
        "picture": spaces.Box(np.zeros((2, 1, 2), np.uint8), np.array([[[1, 2]], [[3, 4]]], np.uint8), dtype=np.uint8),
        "place": spaces.Discrete(2),
    }
)


def board(t):
    return np.arange(t, t + 6, dtype=np.uint8).reshape(2, 3)


class Alone(gymnasium.Env):
    """Step t shows a board of t to t + 5, beside other parts."""

    observation_space: Any = SEEN
    action_space = spaces.Discrete(2)

    def __init__(self, wrong=False):
        self.wrong = wrong

    def seen(self):
        shown = board(self.t).T if self.wrong else board(self.t)
        return {
            "boards": (shown, np.eye(2, dtype=np.float32)),
            "picture": np.array([[[1, 0]], [[3, self.t]]], np.uint8),
            "place": 1,
        }

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.seen(), {}

    def step(self, action):
        self.t += 1
        return self.seen(), 0.0, self.t == 3, False, {}


class Pair(ParallelEnv):
    """Two players see boards and may not take action 0; the second one's board is 1 higher."""

    metadata = {"name": "pair"}  # noqa: RUF012
    render_mode = None
    possible_agents = ["ann", "bob"]  # noqa: RUF012
    space = spaces.Dict({"observation": BOARD, "action_mask": spaces.MultiBinary(3)})

    def observation_space(self, agent):
        return self.space

    def action_space(self, agent):
        return spaces.Discrete(3)

    def _seen(self):
        mask = np.array([0, 1, 1], np.int8)
        return {name: {"observation": board(self.t + i), "action_mask": mask} for i, name in enumerate(self.agents)}

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, list(self.possible_agents)
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions):
        self.t += 1
        seen, given = self._seen(), dict.fromkeys(self.agents, 1.0)
        over = dict.fromkeys(self.agents, self.t == 3)
        infos: dict[str, Any] = {name: {} for name in self.agents}
        if self.t == 3:
            self.agents = []
        return seen, given, over, dict.fromkeys(over, False), infos


def turns():
    return parallel_to_aec(Pair())


class Shown(BaseWrapper):
    """A `last()` of its own: one higher boards."""

    def last(self, observe=True):
        seen, *rest = super().last(observe)
        return {**seen, "observation": seen["observation"] + 1} if observe else None, *rest


def test_images_become_vectors_and_other_parts_stay():
    spec = probe(mt.Flatten(Alone))
    (player,) = spec.players
    flat: Any = player.observation_space
    assert flat["boards"][0] == spaces.Box(0, 9, (6,), np.uint8)
    assert flat["picture"] == spaces.Box(np.zeros(4, np.uint8), np.array([1, 2, 3, 4], np.uint8), dtype=np.uint8)
    assert (flat["boards"][1], flat["place"]) == (SEEN["boards"][1], SEEN["place"])
    assert [(p.name, p.image) for p in player.parts] == [
        ("boards.0", False), ("boards.1", False), ("picture", False), ("place", False),
    ]  # fmt: skip
    vector = DummyVectorEnv(mt.Flatten(Alone), 1)
    vector.reset(0)
    step = vector.step(act(spec))
    (obs,) = step.obs
    assert isinstance(obs, np.ndarray)
    assert obs[0, 0].tolist() == [1, 2, 3, 4, 5, 6, 1, 0, 0, 1, 1, 0, 3, 1, 0, 1]
    assert check_env(mt.Flatten(Alone)).ok


@pytest.mark.parametrize(("env", "lowest"), [(Pair, [0, 1]), (turns, [0, 1]), (lambda: Shown(turns()), [1, 2])])
def test_players_with_masks_in_all_interfaces(env, lowest):
    """The first values of ann and bob, at their first turns."""
    vector = DummyVectorEnv(mt.Flatten(env), 1)
    assert vector.spec.groups[0].layout.shapes == {"vector": ((6,), np.float32)}
    step = vector.reset(0)
    for row in range(2):
        if not step.turn[0][row, 0]:
            step = vector.step(act(vector.spec, ann=1))
        obs, legal = step.obs[0], step.legal[0]
        assert isinstance(obs, np.ndarray)
        assert legal is not None
        assert obs[row, 0].tolist() == list(range(lowest[row], lowest[row] + 6))
        assert legal[row, 0].tolist() == [False, True, True]


def test_frames_are_flattened_and_vectors_are_stacked():
    (player,) = probe(mt.Flatten(mt.FrameStack(Board, 2))).players
    assert player.observation_space.shape == (12,)
    (other,) = probe(mt.FrameStack(mt.Flatten(Board), 2)).players
    assert other.observation_space.shape == (2, 6)
    for each in (player, other):
        assert each.layout.shapes == {"vector": ((12,), np.float32)}
    for env in (mt.Flatten(mt.FrameStack(Board, 2)), mt.FrameStack(mt.Flatten(Board), 2)):
        vector = DummyVectorEnv(env, 1)
        vector.reset(0)
        obs: Any = vector.step(act(vector.spec)).obs[0]
        assert obs[0, 0].tolist() == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]


class Board(Alone):
    """The board alone."""

    observation_space: Any = BOARD

    def seen(self):
        return super().seen()["boards"][0]


flat_board = mt.Flatten(Board)


def test_a_module_may_hold_a_wrapped_environment():
    (player,) = probe("tests.envs.test_flatten:flat_board", {"wrong": False}).players
    assert player.observation_space.shape == (6,)
    with pytest.raises(ConfigError, match="takes no argument 'rong'"):
        resolve("tests.envs.test_flatten:flat_board", {"rong": True})
    vector = SubprocVectorEnv("tests.envs.test_flatten:flat_board", 2, num_workers=1)
    obs: Any = vector.reset(0).obs[0]
    assert obs[0].tolist() == [[0, 1, 2, 3, 4, 5]] * 2
    vector.close()


def test_a_board_of_another_shape_is_still_refused():
    with pytest.raises(EnvError, match=r"step 0: player 'player_0': observation has shape \(3, 2\)"):
        DummyVectorEnv(resolve(mt.Flatten(Board), {"wrong": True}), 1).reset(0)


def test_native_games_observe_vectors():
    with pytest.raises(ConfigError, match="native game, which observes vectors"):
        mt.Flatten("marltrain/CartPole-v1").source({})
    (player,) = probe(mt.FrameStack("marltrain/CartPole-v1", 3)).players
    assert player.observation_space.shape == (3, 4)
    obs: Any = DummyVectorEnv(mt.FrameStack("marltrain/CartPole-v1", 3), 2).reset(0).obs[0]
    assert obs.shape == (1, 2, 12)
