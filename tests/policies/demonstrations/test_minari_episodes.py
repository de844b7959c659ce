import functools
import sys
from typing import Any

import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from marltrain.core.errors import AgentError, ConfigError
from marltrain.policies.demonstrations.demonstrations import Demonstrations

pytestmark = pytest.mark.filterwarnings(
    "ignore:`eval_env` is set to None:UserWarning", "ignore:env_spec is None:UserWarning"
)

LINE, MOVES = spaces.Box(0, 100, (2,), np.float32), spaces.Discrete(3, start=1)
NESTED = spaces.Dict({"place": LINE, "both": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,), np.float32)))})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Minari's folder of local datasets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


ABOUT = {"algorithm_name": "none", "author": "none", "author_email": "none", "code_permalink": "none",
         "description": "made by a test"}  # fmt: skip
MASK = [[1, 0, 1], [0, 1, 1], [1, 1, 1]]


def episode(number, observations, actions, infos=None, **changes):
    steps = len(actions)
    last = [i == steps - 1 for i in range(steps)]
    given = {"rewards": [1.0] * steps, "terminations": last, "truncations": [False] * steps, **changes}
    return EpisodeBuffer(id=number, observations=observations, actions=actions, infos=infos or {}, **given)


def created(*episodes):
    return minari.create_dataset_from_buffers(
        "toy/line-v0", list(episodes), observation_space=LINE, action_space=MOVES, **ABOUT
    )


def shown_rows(at, then, **changes):
    """Decisions at places on a line, which lead to others; the last one ends by termination."""
    given = {
        "action": [1] * len(at), "next_observation": np.array(line(*then)), "reward": [1] * len(at),
        "terminated": np.arange(len(at)) == len(at) - 1, **changes,
    }  # fmt: skip
    return Demonstrations.from_arrays(LINE, MOVES, np.array(line(*at)), **given)


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
    result = minari.create_dataset_from_buffers(
        "toy/nested-v0", [episode(0, seen, [1])], observation_space=NESTED, action_space=MOVES, algorithm_name="none",
        author="none", author_email="none", code_permalink="none", description="made by a test",
    )  # fmt: skip
    found = Demonstrations.from_minari(result)
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
    with pytest.raises(ConfigError, match=r'pip install "marltrain\[minari\]"'):
        Demonstrations.from_minari("toy/line-v0")


def arrays_of(found):
    return {
        name: getattr(found, name) for name in ("obs", "next_obs", "action", "ends", "legal", "reward", "terminated")
    }


def test_written_datasets_are_read_again():
    """Actions that start from 1, nested observations, legal actions, a terminated and a truncated episode."""
    legal = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    place = np.array(line(0, 1, 5))
    nested = {"place": place, "both": (np.array([0, 1, 1]), np.array([[0.5], [1.0], [0.25]], np.float32))}
    following = (np.array([1, 0, 0]), np.array([[1.0], [0.0], [0.75]], np.float32))
    after = {"place": np.array(line(1, 2, 6)), "both": following}
    result = Demonstrations.from_arrays(
        NESTED, MOVES, nested, [1, 3, 1], ends=[False, True, True], legal=legal, next_observation=after,
        reward=[0.5, -1, 2], terminated=[False, True, False],
    )  # fmt: skip
    written = result.to_minari("toy/own-v0", author="none", author_email="none", code_permalink="none", description="x",
                             algorithm_name="none")  # fmt: skip
    assert (written.total_episodes, written.total_steps) == (2, 3)
    first, second = written.iterate_episodes()
    assert (first.terminations.tolist(), first.truncations.tolist()) == ([False, True], [False, False])
    assert (second.terminations.tolist(), second.truncations.tolist()) == ([False], [True])
    assert first.actions.tolist() == [1, 3]
    again = Demonstrations.from_minari("toy/own-v0")
    for name, array in arrays_of(again).items():
        assert same(array, arrays_of(result)[name]), name
    with pytest.raises(ConfigError, match=r"'toy/own-v0' cannot be made: .*there is one already"):
        result.to_minari("toy/own-v0")
    assert Demonstrations.from_minari("toy/own-v0").action.tolist() == [0, 2, 0]


def test_incomplete_decisions_are_not_written():
    with pytest.raises(AgentError, match="lack some"):
        Demonstrations.from_arrays(LINE, MOVES, np.array(line(0, 1)), [1, 2]).to_minari("toy/own-v0")
    rest: dict[str, Any] = {"next_observation": np.array(line(1, 2)), "reward": [0, 1], "terminated": [False, False]}
    open_end = Demonstrations.from_arrays(LINE, MOVES, np.array(line(0, 1)), [1, 2], ends=[False, False], **rest)
    with pytest.raises(AgentError, match="their last decision ends no episode"):
        open_end.to_minari("toy/own-v0")
    with pytest.raises(AgentError, match="decision 0 is terminated, and does not end its episode"):
        Demonstrations.from_arrays(LINE, MOVES, np.array(line(0, 1)), [1, 2], terminated=[True, True])
    with pytest.raises(AgentError, match="the reward of decision 1 is not finite"):
        Demonstrations.from_arrays(LINE, MOVES, np.array(line(0, 1)), [1, 2], reward=[0, np.nan])


def test_decisions_that_do_not_follow_each_other_are_not_written():
    """Places 0, 1, 5, 6, 8 lead to 1, 2, 6, 7, 9: decisions 1 and 3 lead to other places than those after them."""
    at, then = [0, 1, 5, 6, 8], [1, 2, 6, 7, 9]
    expected = r"next observation of decision 1 is not the observation of decision 2.*\(so are 2 of 5 decisions\)"
    with pytest.raises(AgentError, match=expected):
        shown_rows(at, then).to_minari("toy/gap-v0", **ABOUT)
    with pytest.raises(AgentError, match=r"of decision 3 is not .* of decision 4.*\(so are 1 of 5 decisions\)"):
        shown_rows(at, then, ends=[0, 1, 0, 0, 1]).to_minari("toy/gap-v0", **ABOUT)
    assert minari.list_local_datasets() == {}
    pieces = shown_rows(at, then, ends=[0, 1, 0, 1, 1])
    assert pieces.to_minari("toy/gap-v0", **ABOUT).total_episodes == 3
    again = Demonstrations.from_minari("toy/gap-v0")
    for name, array in arrays_of(pieces).items():
        assert same(getattr(again, name), array), name


def test_observations_that_their_space_cannot_express_are_not_written():
    """Whole numbers have no 0.5, and a Discrete value has one 1: these arrays would become others."""
    count, one = spaces.Box(0, 9, (1,), np.int64), spaces.Discrete(2)
    for space, obs in ((count, [[2], [0.5]]), (one, [[0, 1], [1, 1]])):
        rows = np.array(obs, np.float32)
        given = Demonstrations(
            space, spaces.Discrete(2), rows, np.array([0, 1]), np.array([True, True]), next_obs=rows[:1].repeat(2, 0),
            reward=np.zeros(2, np.float32), terminated=np.array([True, True]),
        )  # fmt: skip
        with pytest.raises(AgentError, match="obs of decision 1 is none of them"):
            given.to_minari("toy/half-v0", **ABOUT)


@pytest.mark.parametrize("shape", [(40, 40), (40, 40, 1), (33, 47, 3), (32, 32, 4)])
def test_images_are_written_exactly(shape):
    """By default Minari stores images of 32 x 32 and more as JPEG, which changes values, and has no 1 or 4 channels."""
    images = np.random.default_rng(0).integers(0, 256, (4, *shape)).astype(np.uint8)
    result = Demonstrations.from_arrays(
        spaces.Box(0, 255, shape, np.uint8), MOVES, images[:3], [1, 2, 3], next_observation=images[1:],
        reward=[0, 1, 2], terminated=[False, False, True],
    )  # fmt: skip
    result.to_minari("toy/film-v0", **ABOUT)
    again = Demonstrations.from_minari("toy/film-v0")
    assert same(again.obs, result.obs) and same(again.next_obs, result.next_obs)


def test_a_dataset_that_cannot_hold_the_rows_is_removed():
    """A "/" in a key is a folder to the package that stores; the names are free afterwards, and others can be read."""
    slash = spaces.Dict({"a/b": LINE, "c": LINE})
    seen, after = ({name: np.array(line(*at)) for name in slash} for at in ((0, 1), (1, 2)))
    rest: dict[str, Any] = {"reward": [0, 1], "terminated": [False, True]}
    split = Demonstrations.from_arrays(slash, MOVES, seen, [1, 2], next_observation=after, **rest)
    with pytest.raises(AgentError, match="'toy/own-v0' cannot be read again"):
        split.to_minari("toy/own-v0", **ABOUT)
    good = shown_rows([0, 1], [1, 2])
    with pytest.raises(ConfigError, match=r"no argument 'auther'\. Did you mean 'author'"):
        good.to_minari("toy/own-v0", auther="none")
    wrong: list[Any] = ["a b", 3]
    for name in wrong:
        with pytest.raises(ConfigError, match=f"{name!r} cannot be made: "):
            good.to_minari(name, **ABOUT)
    assert good.to_minari("toy/own-v0", **ABOUT).total_steps == 2 and len(minari.list_local_datasets()) == 1


def test_a_single_decision_is_written():
    assert shown_rows([3], [4]).to_minari("toy/one-v0", **ABOUT).total_steps == 1
    assert same(Demonstrations.from_minari("toy/one-v0").next_obs, line(4))


def test_values_that_the_files_change_are_an_error(monkeypatch):
    """A stand-in for a version of Minari that rounds observations."""
    create = minari.create_dataset_from_buffers

    @functools.wraps(create)
    def rounds(name, episodes, **details):
        for one in episodes:
            one.observations[...] = np.floor(one.observations)
        return create(name, episodes, **details)

    monkeypatch.setattr(minari, "create_dataset_from_buffers", rounds)
    with pytest.raises(AgentError, match="would hold other values of obs, next_obs than"):
        shown_rows([0, 0.5], [0.5, 1.25]).to_minari("toy/half-v0", **ABOUT)
    assert not minari.list_local_datasets()


def test_legal_actions_of_every_episode_are_read():
    """The last row of a mask belongs to the observation after the last action."""
    masks = np.array(MASK, np.int8)
    places = [line(0, 1, 2), line(5, 6)]
    own = created(episode(0, places[0], [1, 3], {"action_mask": masks}),
                  episode(1, places[1], [2], {"action_mask": masks[1:]}))  # fmt: skip
    legal = Demonstrations.from_minari(own).legal
    assert same(legal, [[True, False, True], [False, True, True], [False, True, True]])


def test_legal_actions_of_some_episodes_only_are_an_error_that_names_the_episode():
    masks = np.array(MASK, np.int8)
    some = created(episode(0, line(0, 1, 2), [1, 3], {"action_mask": masks}), episode(1, line(5, 6), [2]))
    with pytest.raises(ConfigError, match=r"1 of 2 episodes have the info 'action_mask'.* episode 1 has none"):
        Demonstrations.from_minari(some)
    assert same(Demonstrations.from_minari(some, episodes=1).legal, masks[:2] == 1)
    kept = some.filter_episodes(lambda episode: "action_mask" in episode.infos)
    assert same(Demonstrations.from_minari(kept).legal, masks[:2] == 1)


def test_legal_actions_of_other_lengths_are_an_error_that_names_the_episode():
    """2 and 3 rows for 2 and 1 actions: joined, they would be as many as needed, at wrong places."""
    masks = np.array(MASK, np.int8)
    shifted = created(episode(0, line(0, 1, 2), [1, 3], {"action_mask": masks[:2]}),
                      episode(1, line(5, 6), [2], {"action_mask": masks}))  # fmt: skip
    expected = "episode 0: 2 rows of info 'action_mask', expected 3 for 2 actions"
    with pytest.raises(ConfigError, match=expected):
        Demonstrations.from_minari(shifted)


def test_ends_before_the_last_step_of_an_episode_are_kept():
    """Of 4 steps, the first is terminated, the second truncated and the last neither; it ends all the same."""
    own = created(episode(0, line(0, 1, 2, 3, 4), [1, 2, 3, 1], terminations=[True, False, False, False],
                          truncations=[False, True, False, False]))  # fmt: skip
    found = Demonstrations.from_minari(own)
    assert same(found.terminated, [True, False, False, False])
    assert found.ends.tolist() == [True, True, False, True]
    assert same(found.next_obs, line(1, 2, 3, 4))
