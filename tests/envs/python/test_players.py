"""Gymnasium environments of several players: which are, and each form of values by hand (see tests.players_toys)."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import EnvError, SpecError
from marltrain.envs import DummyVectorEnv, probe, resolve
from marltrain.envs.faults import FaultPolicy
from marltrain.envs.python.players import PlayersEnv, by_player
from tests.envs.driving import act, column
from tests.players_toys import SEEN, Masked, Team, Various

PAIRS = {"player_0": 1, "player_1": 2}


def play(env, arguments, num_steps=4, chosen=PAIRS, **options):
    """Return the spec, and the Steps of an episode in which the players always take the same action."""
    vector = DummyVectorEnv(resolve(env, arguments), 1, **options)
    said = [column(vector.spec, vector.reset(0))]
    said += [column(vector.spec, vector.step(act(vector.spec, **chosen))) for _ in range(num_steps)]
    vector.close()
    return vector.spec, said


@pytest.mark.parametrize("keys", [None, ("a", "b"), (0, 1)])
@pytest.mark.parametrize(
    ("form", "paid"), [("list", [1, 4]), ("array", [1, 4]), ("mapping", [1, 4]), ("number", [5, 5])]
)
def test_rewards_of_each_form_by_hand(form, paid, keys):
    names = [f"player_{i}" for i in range(2)] if keys is None else [str(key) for key in keys]
    spec, said = play(Team, {"rewards": form, "keys": keys}, chosen=dict(zip(names, (1, 2), strict=True)))
    assert spec.names == tuple(names) and [group.size for group in spec.groups] == [2]
    assert said[0]["obs"] == {names[0]: [0, 0], names[1]: [0, 1]}
    for t, step in enumerate(said[1:], start=1):
        assert step["reward"] == dict(zip(names, paid, strict=True))
        assert ("terminated" in step) == (t == 4) and "truncated" not in step
    assert said[3]["obs"] == {names[0]: [3, 0], names[1]: [3, 1]}
    assert said[4]["final_obs"] == {names[0]: [4, 0], names[1]: [4, 1]}


@pytest.mark.parametrize("flags", ["list", "array", "mapping"])
@pytest.mark.parametrize("keys", [None, ("player_0", "player_1")])
def test_a_player_that_is_over_gets_no_more_rewards_and_does_nothing(flags, keys):
    result = []

    class Kept(Team):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            result.append(self)

    _, said = play(Kept, {"flags": flags, "keys": keys, "leaves": 2}, chosen={"player_0": 2, "player_1": 1})
    assert [step["reward"]["player_0"] for step in said[1:]] == [2, 2, 0, 0]
    assert [step["reward"]["player_1"] for step in said[1:]] == [2, 2, 2, 2]
    assert said[2]["terminated"] == {"player_0": True} and said[2]["final_obs"] == {"player_0": [2, 0]}
    assert list(said[3]["turn"]) == ["player_1"] and said[4]["terminated"] == {"player_1": True}
    given = [tuple(one.values()) if keys else one for one in result[-1].given]
    assert given == [(2, 1), (2, 1), (0, 1), (0, 1)]
    assert all(isinstance(one, dict if keys else tuple) for one in result[-1].given)


def test_the_flag_of_all_players_ends_the_episode():
    _, said = play(Team, {"flags": "every", "keys": ("a", "b")}, chosen={})
    assert "terminated" not in said[3] and said[4]["terminated"] == {"a": True, "b": True}


def test_players_of_different_spaces():
    spec, said = play(Various, {}, 2, {"ann": 1, "bob": [1, 2], "cat": [0.5, 0.25]})
    assert spec.names == ("ann", "bob", "cat") and len(spec.groups) == 3
    assert said[1]["reward"] == {"ann": 6, "bob": 3, "cat": 0.75}  # ann's action 1 is 5 + 1
    assert said[1]["obs"] == {"ann": np.full((4, 4, 1), 1).tolist(), "bob": [0, 1, 0], "cat": [1]}
    assert said[2]["truncated"] == dict.fromkeys(spec.names, True)
    assert said[2]["final_obs"]["bob"] == [0, 0, 1]


@pytest.mark.parametrize("masks", ["list", "array", "mapping", "infos", "listed", "seen"])
@pytest.mark.parametrize("keys", [None, ("player_0", "player_1")])
def test_masks_of_each_form_by_hand(masks, keys):
    vector = DummyVectorEnv(resolve(Masked, {"masks": masks, "keys": keys}), 1)
    spec, step = vector.spec, vector.reset(0)
    assert spec.groups[0].masked
    for t in range(4):
        said = column(spec, step)
        assert said["legal"]["player_0"] == [a for a in range(3) if a != t % 3]
        assert said["legal"]["player_1"] == [a for a in range(3) if a != (t + 1) % 3]
        step = vector.step(act(spec, player_0=(t + 1) % 3, player_1=(t + 2) % 3))
    assert column(spec, step)["final_legal"] == {"player_0": [0, 2], "player_1": [0, 1]}
    assert mt.check_env(Masked, {"masks": masks, "keys": keys}).ok


class InTurn(Team):
    """Players move in turn: the mask of the other allows nothing."""

    def __init__(self):
        super().__init__()
        self.metadata = {"turn_based": True}

    def reset(self, **arguments):
        seen, _ = super().reset(**arguments)
        return seen, self.masks()

    def step(self, actions):
        *rest, _ = super().step(actions)
        return *rest, self.masks()

    def masks(self):
        return {"action_mask": np.arange(2)[:, None] == np.full(3, self.t % 2)}


def test_a_player_that_waits_takes_its_first_choice():
    _, said = play(InTurn, {})
    assert [list(step["turn"]) for step in said[:4]] == [["player_0"], ["player_1"]] * 2
    assert [step["reward"] for step in said[1:3]] == [{"player_0": 1, "player_1": 0}, {"player_0": 0, "player_1": 4}]


class Stated(Team):
    """`Team` with a global state [step, 7]: a method, an attribute or an entry of the info."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        if where == "method":
            self.state: Any = lambda: np.array([self.t, 7.0])

    def reset(self, **arguments):
        seen, _ = super().reset(**arguments)
        return seen, self.told()

    def step(self, actions):
        *rest, _ = super().step(actions)
        return *rest, self.told()

    def told(self):
        state = np.array([self.t, 7.0])
        if self.where == "attribute":
            self.state = state
        return {"state": state} if self.where == "info" else {}


@pytest.mark.parametrize("where", ["method", "attribute", "info"])
def test_global_states(where):
    vector = DummyVectorEnv(resolve(Stated, {"where": where}), 1, with_state=True)
    assert vector.spec.state_shape == (2,)
    arrays, states = vector.reset(0).arrays(), []
    for _ in range(4):
        states.append(arrays["state"].tolist())
        arrays = vector.step(act(vector.spec)).arrays()
    assert states == [[[t, 7]] for t in range(4)]
    assert arrays["state"].tolist() == [[0, 7]] and arrays["final_state"].tolist() == [[4, 7]]
    assert probe(Team, with_state=True).state_shape is None


class Odd(Team):
    """Returns wrong values at step 2."""

    def __init__(self, wrong, keys=None):
        super().__init__(rewards="mapping" if keys else "list", flags="list", keys=keys)
        self.wrong = wrong

    def step(self, actions):
        values = dict(zip(("seen", "reward", "ends", "cut", "info"), super().step(actions), strict=True))
        return tuple({**values, **(self.wrong if self.t == 2 else {})}.values())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reward": [1.0]}, "reward: player 'player_1' has none, expected an entry for each of the 2 players, or one "),
        ({"reward": np.ones(3)}, r"reward: expected an entry for each of the 2 players, .* got 3: array\(\[1"),
        ({"reward": [1.0, np.nan]}, "player 'player_1': reward nan is not finite"),
        ({"reward": [1.0, None]}, "player 'player_1': reward is None, expected one real number"),
        ({"reward": [1.0, "2"]}, "player 'player_1': reward is the text '2'"),
        ({"reward": None}, "player 'player_0': reward is None, expected one real number"),
        ({"reward": {0: 1.0}}, r"player 'player_1': reward is missing, only \['player_0'\] have one"),
        ({"reward": {0: 1.0, 1: 1.0, 2: 1.0}}, r"reward is given for 2, which is none of the players \[0, 1\]"),
        ({"reward": [[1.0, 2.0], [1.0, 2.0]]}, r"player 'player_0': reward is \[1.0, 2.0\], expected one real number"),
        ({"ends": [False]}, "terminated: player 'player_1' has none"),
        ({"cut": [False, "no"]}, "player 'player_1': truncated is the text 'no'"),
        ({"cut": [False, np.zeros(2)]}, "player 'player_1': terminated is False and truncated array"),
        ({"ends": {0: False}}, "player 'player_1': terminated is missing"),
        ({"seen": (np.zeros(2),)}, "observation: player 'player_1' has none, expected an entry for each of the 2 play"),
        ({"seen": {0: np.zeros(2)}}, r"the observation is \{0: array.*expected a tuple of 2: one for each player"),
        ({"seen": (np.zeros(2), np.zeros(3))}, r"player 'player_1': observation has shape \(3,\)"),
        ({"info": None}, "step returned the info None, expected a dict"),
        ({"info": [{}]}, "info: player 'player_1' has none"),
        ({"info": [{}, 3]}, "player 'player_1': info is 3, expected a dict"),
        ({"info": {"action_mask": [[1, 1, 0]]}}, "action_mask: player 'player_1' has none"),
    ],
)
def test_wrong_values_name_the_player_and_the_step(wrong, message):
    vector = DummyVectorEnv(resolve(Odd, {"wrong": wrong}), 1)
    vector.reset(0)
    vector.step(act(vector.spec))
    with pytest.raises(EnvError, match=rf"environment 0 \(Odd\), episode 0 .*step 2: {message}"):
        vector.step(act(vector.spec))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reward": {"a": 1.0}}, "player 'b': reward is missing"),
        ({"seen": {"a": np.zeros(2)}}, "player 'b': observation is missing"),
        ({"seen": (np.zeros(2), np.zeros(2))}, r"expected a dict with the keys \['a', 'b'\]"),
        ({"ends": {"a": False, "c": False}}, r"terminated is given for 'c', which is none of the players \['a', 'b'\]"),
    ],
)
def test_wrong_values_of_players_with_keys(wrong, message):
    vector = DummyVectorEnv(resolve(Odd, {"wrong": wrong, "keys": ("a", "b")}), 1)
    vector.reset(0)
    vector.step(act(vector.spec))
    with pytest.raises(EnvError, match=rf"step 2: .*{message}"):
        vector.step(act(vector.spec))


# Which environments have several players


def made_of(seen, acts, **attributes):
    """Return the environment of these spaces after `by_player`."""
    env = gymnasium.Env()
    env.observation_space, env.action_space = seen, acts
    for name, value in attributes.items():
        setattr(env, name, value)
    return by_player(env)


CHOICE, BOX, TWO = spaces.Discrete(2), spaces.Box(-1, 1, (1,)), spaces.Tuple([SEEN] * 2)
HYBRID = spaces.Tuple([CHOICE, BOX])


def test_equal_entries_of_both_spaces_are_players():
    assert isinstance(made_of(TWO, spaces.Tuple([CHOICE] * 2)), PlayersEnv)
    assert isinstance(made_of(spaces.Tuple([SEEN]), spaces.Tuple([CHOICE])), PlayersEnv)
    assert isinstance(made_of(spaces.Dict(a=SEEN, b=BOX), spaces.Dict(b=BOX, a=CHOICE)), PlayersEnv)
    assert isinstance(made_of(TWO, HYBRID), PlayersEnv)


def test_other_spaces_are_those_of_one_player():
    three, named, nested = spaces.Tuple([CHOICE] * 3), spaces.Dict(a=SEEN), spaces.Tuple([CHOICE, HYBRID])
    for seen, acts in ((TWO, CHOICE), (SEEN, HYBRID), (TWO, three), (TWO, nested)):  # gym-platform's is nested
        assert not isinstance(made_of(seen, acts), PlayersEnv)
    for other in (spaces.Dict(b=CHOICE), spaces.Tuple([CHOICE]), spaces.Dict(a=CHOICE, b=CHOICE)):
        assert not isinstance(made_of(named, other), PlayersEnv)


def test_lists_of_spaces_are_tuples():
    class Listed(Team):
        def __init__(self):
            super().__init__()
            self.observation_space: Any = [SEEN] * 2
            self.action_space: Any = [spaces.Discrete(3)] * 2

    _, said = play(Listed, {})
    assert said[1]["reward"] == {"player_0": 1, "player_1": 4}


def test_a_player_of_a_dict_with_several_actions_at_once_is_named():
    class Nested(Team):
        def __init__(self):
            super().__init__(keys=("a", "b"))
            self.action_space = spaces.Dict(a=CHOICE, b=HYBRID)

    with pytest.raises(SpecError, match=r"player 'b': action space Tuple.* holds several actions at once"):
        probe(Nested)


def test_the_metadata_decide():
    assert not isinstance(made_of(TWO, spaces.Tuple([CHOICE] * 2), metadata={"players": False}), PlayersEnv)
    assert isinstance(made_of(TWO, spaces.Tuple([CHOICE, HYBRID]), metadata={"players": True}), PlayersEnv)
    with pytest.raises(SpecError, match=r"True, but the observation space is Box.*both must be a Tuple with one entry"):
        made_of(SEEN, HYBRID, metadata={"players": True})
    with pytest.raises(SpecError, match=r"metadata\['players'\] must be True or False, got 2"):
        made_of(TWO, HYBRID, metadata={"players": 2})


def test_keys_that_are_equal_as_text_are_refused():
    with pytest.raises(SpecError, match="not different as text"):
        made_of(*(spaces.Dict(dict.fromkeys((1, "1"), part)) for part in (SEEN, CHOICE)))  # type: ignore[arg-type]


class Hybrid(Team):
    """A discrete and a continuous action, with one reward or two."""

    def __init__(self, rewards, **attributes):
        super().__init__(rewards=rewards)
        self.action_space = HYBRID
        for name, value in attributes.items():
            setattr(self, name, value)

    def step(self, actions):
        return super().step((actions[0], actions[1][0]))


def test_choices_beside_numbers_are_players_if_each_has_a_reward():
    spec, said = play(Hybrid, {"rewards": "list"}, chosen={"player_0": 1, "player_1": [1.0]})
    assert said[1]["reward"] == {"player_0": 1, "player_1": 2} and len(spec.groups) == 2
    for declared in ({"metadata": {"players": True}}, {"n_agents": 2}):
        _, said = play(Hybrid, {"rewards": "number", **declared})
        assert said[1]["reward"] == {"player_0": 5, "player_1": 5}


def test_choices_beside_numbers_with_one_reward_are_refused_also_with_restarts():
    handling = FaultPolicy("restart", 10, None)
    vector = DummyVectorEnv(resolve(Hybrid, {"rewards": "number"}), 1, handling=handling)
    vector.reset(0)
    with pytest.raises(EnvError, match=r"may hold the actions of 2 players .*metadata\['players'\] = True"):
        vector.step(act(vector.spec))


@pytest.mark.parametrize("acts", [HYBRID, spaces.Dict(move=CHOICE, turn=BOX), spaces.Tuple([CHOICE, HYBRID])])
def test_one_player_with_several_actions_at_once_is_refused_with_the_remedy(acts):
    class One(Team):
        def __init__(self):
            super().__init__()
            self.observation_space, self.action_space = SEEN, acts

        def seen(self):
            return np.zeros(2, np.float32)

    with pytest.raises(SpecError, match=r"player 'player_0'.*several actions at once.*MultiDiscrete.*with one entry"):
        probe(One)
