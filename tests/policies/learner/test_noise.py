"""Noise drawn for many acts at once is the noise drawn act by act, and the generators can be put back at any time."""

import copy

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.seeds import state_of
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.distributions import distribution_of
from marltrain.policies.distributions.draws import normals
from marltrain.policies.exploration import epsilon_noise
from marltrain.policies.learner import noise as module
from marltrain.policies.learner.noise import Noise

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
SPACES = {
    "categorical": spaces.Discrete(3), "several": spaces.MultiDiscrete([2, 3]), "gaussian": spaces.Box(-1, 1, (3,)),
}  # fmt: skip


def generators(agents=2):
    return [np.random.default_rng(seed) for seed in range(agents)]


def drawn_by(name):
    if name == "epsilon":
        return lambda rngs, rows: epsilon_noise(rngs, rows, 4)
    if name == "apart":  # the rows of an act get the numbers of one kind, then those of another
        return lambda rngs, rows: {**epsilon_noise(rngs, rows, 4), "more": normals(rngs, rows, 2)}
    distribution = distribution_of(SPACES[name])
    return lambda rngs, rows: {"sample": distribution.noise(rngs, rows)}


def assert_equal(mine, theirs):
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        np.testing.assert_array_equal(values, theirs[name])


@pytest.mark.parametrize("name", [*SPACES, "epsilon", "apart"])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_ahead_is_act_by_act(name, rows, monkeypatch):
    """700 rows at once at most: 700, 100 and 10 acts, so that later draws are as long as the ones before."""
    monkeypatch.setattr(module, "ROWS", 700)
    monkeypatch.setattr(module, "ACTS", 1)
    draw = drawn_by(name)
    ahead, mine, theirs = Noise(draw, by_rows=name != "apart"), generators(), generators()
    for act in range(40 if rows < 64 else 60):
        assert_equal(ahead.next(mine, rows), draw(theirs, rows))
        if act in (0, 11, 12, 30):
            ahead.settle()
            ahead.settle()
            assert [rng.random() for rng in mine] == [rng.random() for rng in theirs]


def test_no_draw_of_several_acts_has_many_numbers(monkeypatch):
    """2 agents, 3 rows and 4 numbers a row are 24 an act: 100 numbers are 4 acts; 300 for compiled code are 12."""
    monkeypatch.setattr(module, "NUMBERS_OF_ACTS", 100)
    monkeypatch.setattr(module, "NUMBERS", 300)
    sizes = []

    def draw(rngs, rows):
        sizes.append(rows)
        return epsilon_noise(rngs, rows, 3)

    ahead, mine, theirs = Noise(draw), generators(), generators()
    for _ in range(1 + 2 + 4 + 4 + 4):
        assert_equal(ahead.next(mine, 3), epsilon_noise(theirs, 3, 3))
    assert sizes == [3, 6, 12, 12, 12]
    for expected in (24, 36, 36):
        _, _, left = ahead.prepared(mine, 3)
        assert sizes[-1] == expected
        ahead.skip(left)


def test_noise_that_was_not_used_is_given_back():
    """The last act of a draw, and the first of the next one: the generators are those after the used noise."""
    draw = drawn_by("categorical")
    ahead, mine, theirs = Noise(draw), generators(), generators()
    for act in range(8):
        given = ahead.next(mine, 2)
        ahead.skip(-1)
        if act % 3 == 0:
            ahead.settle()
            assert [state_of(rng) for rng in mine] == [state_of(rng) for rng in theirs]
        assert_equal(ahead.next(mine, 2), given)
        assert_equal(given, draw(theirs, 2))


def test_other_generators_and_other_numbers_of_rows_in_between():
    """A test in the middle of training, then twice as many environments."""
    draw = drawn_by("categorical")
    ahead, training, testing = Noise(draw), generators(), generators(3)
    by_act = copy.deepcopy(training), copy.deepcopy(testing)
    for mine, theirs, rows in [(training, by_act[0], 4)] * 5 + [(testing, by_act[1], 2)] * 3:
        assert_equal(ahead.next(mine, rows), draw(theirs, rows))
    for rows in (4, 4, 8, 8, 8, 4):
        assert_equal(ahead.next(training, rows), draw(by_act[0], rows))
    ahead.settle()
    for mine, theirs in zip(training + testing, by_act[0] + by_act[1], strict=True):
        assert mine.bit_generator.state == theirs.bit_generator.state


def test_an_agent_is_saved_as_if_nothing_had_been_drawn_ahead():
    """Five acts in the middle of what was drawn, seen from outside, from an agent's own act, and from a copy."""
    agent = mt.PPO(VECTOR, spaces.Discrete(4), seed=2)
    learner, by_act = agent.learner(), agent.algorithm.noise
    rngs, plain = learner.rngs("act"), [np.random.default_rng(0)]
    plain[0].bit_generator.state = rngs[0].bit_generator.state
    on = np.ones((1, 3), bool)
    for _ in range(5):
        learner.act(ActInputs(np.zeros((1, 3, 5), np.float32), None, on), turn=on, rngs=rngs)
        by_act(plain, 3)
    assert rngs[0].bit_generator.state != plain[0].bit_generator.state
    saved = learner.export(0)
    assert saved.info["rngs"]["act"] == plain[0].bit_generator.state
    learner.act(ActInputs(np.zeros((1, 3, 5), np.float32), None, on), turn=on, rngs=rngs)
    agent.act(np.zeros(5, np.float32), explore=True)
    by_act(plain, 4)
    assert learner.rngs("act")[0].bit_generator.state == plain[0].bit_generator.state
    learner.act(ActInputs(np.zeros((1, 3, 5), np.float32), None, on), turn=on, rngs=rngs)
    learner.load(0, saved)
    assert learner.rngs("act")[0].bit_generator.state == saved.info["rngs"]["act"]


def test_noise_of_ones_own_is_drawn_act_by_act_unless_it_says_that_rows_follow_each_other():
    class Mine(PPOAlgorithm):
        def noise(self, rngs, rows):
            asked.append(rows)
            return super().noise(rngs, rows)

    class InRows(Mine):
        noise_by_rows = True

        def noise(self, rngs, rows):
            return super().noise(rngs, rows)

    for algorithm, expected in ((Mine, [3] * 6), (InRows, [3, 6, 12])):
        asked: list[int] = []
        agent = type("Agent", (mt.PPO,), {"algorithm_class": algorithm})(VECTOR, spaces.Discrete(4), seed=2)
        learner, on = agent.learner(), np.ones((1, 3), bool)
        rngs = learner.rngs("act")
        for _ in range(6):
            learner.act(ActInputs(np.zeros((1, 3, 5), np.float32), None, on), turn=on, rngs=rngs)
        assert asked == expected


@pytest.mark.parametrize(("rows", "acts"), [(21, 1), (2, 7)])
def test_acts_used_several_at_once_are_those_handed_out_one_by_one(rows, acts, monkeypatch):
    """1, 2, 4, 7 and 7 acts of 3 rows are drawn (21 rows, or 7 acts); of what is left, a part is used, or one act."""
    monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(module, "ACTS", acts)
    draw = drawn_by("epsilon")
    ahead, mine, theirs = Noise(draw), generators(), generators()
    lefts = []
    for use in (1, 1, 1, 3, 1, 5, 2, 6, 1):
        drawn, first, left = ahead.prepared(mine, 3)
        again, *same = ahead.prepared(mine, 3)
        assert (again is drawn, same) == (True, [first, left])  # nothing was used yet
        lefts.append(left)
        assert drawn["coin"].shape[:3:2] == (2, 3)
        for at in range(first, first + min(use, left)):
            assert_equal({name: values[:, at] for name, values in drawn.items()}, draw(theirs, 3))
        ahead.skip(min(use, left))
    assert lefts == [1, 2, 1, 4, 1, 7, 2, 7, 1]
    assert_equal(ahead.next(mine, 3), draw(theirs, 3))
    ahead.settle()
    assert [rng.random() for rng in mine] == [rng.random() for rng in theirs]
