import json

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import AgentError, SaveError
from marltrain.policies.demonstrations.chains import followed
from marltrain.policies.demonstrations.demonstrations import Demonstrations
from marltrain.storage.files import with_checksum

LINE = spaces.Box(0, 10, (2,), np.float32)
MOVES = spaces.Discrete(3, start=5)
MIXED = spaces.Dict(
    {"screen": spaces.Box(0, 255, (4, 5), np.uint8), "digit": spaces.Discrete(3, start=-1),
     "tail": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])))}
)  # fmt: skip


def same(obs, expected):
    return np.array_equal(obs, expected)


def small(**changed):
    """Return three decisions in two episodes."""
    arrays = {
        "observation": np.array([[0, 1], [2, 3], [4, 5]], np.float32), "action": [5, 7, 6],
        "legal": [[1, 0, 0], [1, 1, 1], [0, 1, 1]], "ends": [0, 1, 0],
        "next_observation": np.array([[2, 3], [9, 9], [6, 7]], np.float32),
    }  # fmt: skip
    return Demonstrations.from_arrays(LINE, MOVES, **{**arrays, **changed})


def equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_arrays_by_hand():
    result = small()
    assert result.obs.dtype == np.float32
    assert same(result.obs, [[0, 1], [2, 3], [4, 5]])
    assert result.action.dtype == np.int64
    assert result.action.tolist() == [0, 2, 1]
    assert result.ends.tolist() == [False, True, False]
    assert result.legal is not None
    assert result.legal.tolist()[0] == [True, False, False]
    assert same(result.next_obs, [[2, 3], [9, 9], [6, 7]])
    assert (len(result), result.num_episodes) == (3, 1)
    assert repr(result).startswith(
        "Demonstrations(3 decisions, 1 episodes, Box(0.0, 10.0, (2,), float32) -> Discrete(3"
    )


def test_without_ends_the_decisions_are_one_episode():
    assert small(ends=None, legal=None, next_observation=None).ends.tolist() == [False, False, True]


def test_structures_are_encoded_and_actions_count_from_0():
    screen = np.arange(40, dtype=np.uint8).reshape(2, 4, 5)
    tail = (np.array([[1, 0], [0, 1]]), np.array([[1, 2], [0, 0]]))
    result = Demonstrations.from_arrays(
        MIXED, spaces.MultiDiscrete([2, 3, 4], start=[1, 1, 1]), {"screen": screen, "digit": [-1, 1], "tail": tail},
        [[1, 1, 1], [2, 3, 4]],
    )  # fmt: skip
    assert isinstance(result.obs, dict)
    assert np.array_equal(result.obs["screen"], screen)
    assert result.obs["vector"].tolist() == [[1, 0, 0, 1, 0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 1, 1, 0, 1, 0, 0]]
    assert result.action.tolist() == [[0, 0, 0], [1, 2, 3]]


def test_action_mask_of_an_observation_is_its_legal_actions():
    masked = spaces.Dict({"observation": LINE, "action_mask": spaces.Box(0, 1, (3,), np.int8)})
    seen = {"observation": np.ones((2, 2), np.float32), "action_mask": np.array([[1, 0, 0], [0, 0, 1]], np.int8)}
    result = Demonstrations.from_arrays(masked, MOVES, seen, [5, 7])
    assert result.observation_space == LINE
    assert result.legal is not None
    assert result.legal.tolist() == [[True, False, False], [False, False, True]]


def test_box_actions_are_flat_and_bounds_that_float32_rounds_are_kept():
    space = spaces.Box(-0.1, 0.1, (2, 1), np.float64)
    result = Demonstrations.from_arrays(LINE, space, np.zeros((1, 2)), np.array([[[0.1], [-0.1]]]))
    assert result.action.shape == (1, 2)
    assert result.action.dtype == np.float32
    assert (np.abs(result.action.astype(float)) <= 0.1).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"action": [5, 8, 6]}, r"action of decision 1 is outside of its space Discrete\(3, start=5\)"),
        ({"action": [4, 5, 6]}, "action of decision 0 is outside"),
        ({"action": [5.0, 7, 6]}, "must hold an action of Discrete.*got float64"),
        ({"action": [[5], [7], [6]]}, r"must hold an action of Discrete.*shape \(3, 1\)"),
        ({"action": [6, 7, 6]}, "the action of decision 0 is not one of its legal actions"),
        ({"legal": [[1, 1], [1, 1], [1, 1]]}, r"legal must be bool of shape \(3, 3\), got bool of shape \(3, 2\)"),
        ({"legal": [[2, 1, 1]] * 3}, "legal must hold truth values"),
        ({"ends": [0, 1]}, r"ends must be bool of shape \(3,\)"),
        ({"observation": np.zeros((3, 3))}, r"observation has shape \(3, 3\), its space says \(2,\)"),
        ({"observation": np.zeros((2, 2))}, r"obs, part 'vector', must be float32 of shape \(3, 2\)"),
        ({"observation": np.zeros(2)}, "observation must have a leading axis"),
        ({"observation": [[0, 0], [0, np.nan], [0, 0]]}, r"observation leaves .*row 1: entry 1 is nan"),
        ({"next_observation": np.zeros((4, 2))}, r"next_obs, part 'vector', must be float32 of shape \(3, 2\)"),
        ({"observation": np.zeros((0, 2)), "action": np.zeros(0, int), "ends": None}, "hold no decisions"),
    ],
)
def test_wrong_arrays_are_refused(changed, message):
    with pytest.raises(AgentError, match=message):
        small(**changed)


def test_box_action_outside_of_the_bounds_is_refused():
    with pytest.raises(AgentError, match="action of decision 1 is outside of its space"):
        Demonstrations.from_arrays(LINE, spaces.Box(-1, 1, (1,), np.float32), np.zeros((2, 2)), [[1.0], [1.01]])


def test_other_spaces_are_refused_with_both_names():
    result = small()
    result.check_fits(LINE, MOVES)
    result.check_fits(spaces.Dict({"observation": LINE, "action_mask": spaces.Box(0, 1, (3,), np.int8)}), MOVES)
    other = spaces.Box(0, 9, (2,), np.float32)
    with pytest.raises(
        AgentError, match=r"other spaces: their observation space is Box\(0.0, 10.0.*expected Box\(0.0, 9"
    ):
        result.check_fits(other, MOVES)
    with pytest.raises(
        AgentError, match=r"other spaces: their action space is Discrete\(3, start=5\), expected Discrete\(3\)"
    ):
        result.check_fits(LINE, spaces.Discrete(3))
    with pytest.raises(AgentError, match="stack 1 frames, expected 4"):
        result.check_fits(LINE, MOVES, 4)


def test_joined_demonstrations_keep_what_all_have():
    one, two = small(), small(next_observation=None)
    both = Demonstrations.joined([one, one])
    assert both.action.tolist() == [0, 2, 1, 0, 2, 1]
    assert both.next_obs is not None
    assert both.legal is not None
    assert Demonstrations.joined([one, two]).next_obs is None
    with pytest.raises(AgentError, match="some demonstrations have legal actions"):
        Demonstrations.joined([one, small(legal=None)])
    with pytest.raises(AgentError, match="list is empty"):
        Demonstrations.joined([])


def test_saved_demonstrations_are_loaded_again(tmp_path):
    mixed = Demonstrations.from_arrays(
        MIXED, spaces.Box(-1, 1, (2,), np.float32),
        {"screen": np.ones((2, 4, 5), np.uint8), "digit": [0, 1], "tail": (np.ones((2, 2)), np.zeros((2, 2), int))},
        np.zeros((2, 2)),
    )  # fmt: skip
    for result in (small(), small(legal=None, next_observation=None), mixed):
        result.save(tmp_path / "demos")
        found = Demonstrations.load(tmp_path / "demos")
        found.check_fits(result.observation_space, result.action_space)
        assert (found.legal is None, found.next_obs is None) == (result.legal is None, result.next_obs is None)
        assert np.array_equal(found.action, result.action)
        assert np.array_equal(found.ends, result.ends)
        if isinstance(result.obs, dict) and isinstance(found.obs, dict):
            assert list(found.obs) == list(result.obs)
            assert equal(found.obs.values(), result.obs.values())
        else:
            assert same(found.obs, result.obs)


def test_folder_of_other_things_is_not_replaced(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SaveError, match="holds other things than demonstrations"):
        small().save(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "marltrain-agents"}, "does not describe demonstrations"),
        ({"schema": 2}, "schema 2, written by marltrain .* reads schema 1"),
        ({"more": 1}, "keys missing or unknown: more"),
        ({"frame_stack": "one"}, "'frame_stack' must be of type int"),
        ({"files": {"../x": ""}}, '"files" must name demonstrations.safetensors'),
        ({"action_space": {"type": "Discrete", "n": 2, "start": 5}}, "action of decision 1 is outside of its space"),
        ({"observation_space": {"type": "Discrete", "n": 4, "start": 0}}, r"obs, part 'vector', must be float32"),
        ({"observation_space": {"type": "Heap"}}, "unknown type 'Heap'"),
    ],
)  # fmt: skip
def test_changed_description_is_refused(change, message, tmp_path):
    small(legal=None).save(tmp_path / "demos")
    file = tmp_path / "demos" / "demonstrations.json"
    file.write_text(json.dumps(with_checksum({**json.loads(file.read_text()), **change})))
    with pytest.raises(SaveError, match=message):
        Demonstrations.load(tmp_path / "demos")


def test_damaged_files_are_refused(tmp_path):
    small().save(tmp_path / "demos")
    arrays = tmp_path / "demos" / "demonstrations.safetensors"
    data = bytearray(arrays.read_bytes())
    data[-1] ^= 1
    arrays.write_bytes(data)
    with pytest.raises(SaveError, match="its checksum is not the one in demonstrations"):
        Demonstrations.load(tmp_path / "demos")
    with pytest.raises(SaveError, match="there is no such folder"):
        Demonstrations.load(tmp_path / "nothing")


def test_rows_that_are_followed_by_the_next():
    """The last row has none after it, also if it is the only one; parts must all be equal."""
    a, b = np.array([[0, 0], [1, 5], [2, 5]], np.float32), np.array([[1, 5], [2, 6], [0, 0]], np.float32)
    assert followed(a, b).tolist() == [True, False, False]
    assert followed(a[:1], b[:1]).tolist() == [False]
    image = np.zeros((3, 2, 2), np.uint8)
    other = image.copy()
    other[0, 1, 1] = 1
    assert followed({"one": a, "two": image}, {"one": b, "two": other}).tolist() == [False, False, False]
    assert followed({"one": a, "two": image}, {"one": b, "two": image}).tolist() == [True, False, False]
