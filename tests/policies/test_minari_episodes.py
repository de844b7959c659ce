import sys

import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from marltrain.errors import ConfigError
from marltrain.policies.demonstrations import Demonstrations

pytestmark = pytest.mark.filterwarnings(
    "ignore:`eval_env` is set to None:UserWarning", "ignore:env_spec is None:UserWarning"
)

LINE, MOVES = spaces.Box(0, 100, (2,), np.float32), spaces.Discrete(3, start=1)
NESTED = spaces.Dict({"place": LINE, "both": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,), np.float32)))})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Minari's folder of local datasets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def episode(number, observations, actions):
    steps = len(actions)
    last = [i == steps - 1 for i in range(steps)]
    return EpisodeBuffer(
        id=number, observations=observations, actions=actions, rewards=[1.0] * steps, terminations=last,
        truncations=[False] * steps, infos={},
    )  # fmt: skip


def same(obs, expected):
    return np.array_equal(obs, expected)


def line(*values):
    return [np.array([v, 10 * v], np.float32) for v in values]


@pytest.fixture
def dataset():
    """Two episodes, of two steps and of one."""
    episodes = [episode(0, line(0, 1, 2), [1, 3]), episode(1, line(5, 6), [2])]
    return minari.create_dataset_from_buffers(
        "toy/line-v0", episodes, observation_space=LINE, action_space=MOVES, algorithm_name="none", author="none",
        author_email="none", code_permalink="none", description="made by a test",
    )  # fmt: skip


def test_decisions_of_a_dataset_by_hand(dataset):
    for found in (Demonstrations.from_minari(dataset), Demonstrations.from_minari("toy/line-v0")):
        assert same(found.obs, [[0, 0], [1, 10], [5, 50]])
        assert same(found.next_obs, [[1, 10], [2, 20], [6, 60]])
        assert found.action.tolist() == [0, 2, 1]
        assert found.ends.tolist() == [False, True, True]
        assert found.legal is None
        found.check_fits(LINE, MOVES)


def test_first_episodes_of_a_dataset(dataset):
    assert Demonstrations.from_minari(dataset, episodes=1).action.tolist() == [0, 2]
    with pytest.raises(ConfigError, match="episodes must be from 1 to the dataset's 2, or None for all, got 3"):
        Demonstrations.from_minari(dataset, episodes=3)


def test_nested_observations_of_a_dataset():
    seen = {"place": np.array(line(1, 2)), "both": (np.array([0, 1]), np.array([[0.5], [1.0]], np.float32))}
    made = minari.create_dataset_from_buffers(
        "toy/nested-v0", [episode(0, seen, [1])], observation_space=NESTED, action_space=MOVES, algorithm_name="none",
        author="none", author_email="none", code_permalink="none", description="made by a test",
    )  # fmt: skip
    found = Demonstrations.from_minari(made)
    names = [part.name for part in found.layout.parts]
    assert names == ["both.0", "both.1", "place"]
    assert same(found.obs, [[1, 0, 0.5, 1, 10]])
    assert same(found.next_obs, [[0, 1, 1.0, 2, 20]])


def test_unknown_dataset_names_the_local_ones(dataset):
    with pytest.raises(ConfigError, match=r"no local Minari dataset 'toy/lime-v0'\. Did you mean 'toy/line-v0'"):
        Demonstrations.from_minari("toy/lime-v0")
    with pytest.raises(ConfigError, match=r"must be a minari\.MinariDataset or the name of a local one, got 3"):
        Demonstrations.from_minari(3)


def test_without_minari_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ConfigError, match=r"pip install 'marltrain\[minari\]'"):
        Demonstrations.from_minari("toy/line-v0")
