"""`train(rotate=True)`: agents change seats; rewards, masks and tables are by entry of the line-up."""

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from tests.toys import Identity
from tests.trainer.running import SMALL, Student, ppo, tables, trainer, weights

ROCKS, TOE = "marltrain/rock_paper_scissors_v1", "marltrain/tictactoe_v3"


def test_returns_follow_the_entries_and_seats_alternate():
    """Rock against paper: entry 0 loses from every seat."""
    students = [Student(lambda observation: 0), Student(lambda observation: 1)]
    run = trainer(ROCKS, {"num_rounds": 2}, steps_per_train=60, num_train_envs=3, run_dir=False)
    episodes = run.train(students, [1, 1], rotate=True, plot=False)["episodes"]
    assert len(episodes) >= 25
    assert (episodes["return/player_0"] < 0).all() and (episodes["return/player_1"] > 0).all()
    for env, own in episodes.groupby("env"):
        first = int(env) % 2
        assert own["seat/player_0"].tolist() == [(first + j) % 2 for j in range(len(own))]
        assert (own["seat/player_0"] + own["seat/player_1"] == 1).all()
    for place, student in enumerate(students):
        assert all((batch.action == place).all() for batch in student.seen)
        assert sum(len(batch.action) for batch in student.seen) == 60


def test_an_entry_learns_only_from_its_own_rows():
    """Tic-tac-toe: the learner takes the first free field, its opponent the last; rewards are those of its games."""
    learner = Student(lambda observation: 0)
    learner.act = lambda observation, legal=None, explore=False: np.asarray(legal).argmax(-1)  # type: ignore[method-assign]
    last = mt.FunctionAgent(lambda observation, legal: 8 - legal[::-1].argmax())
    run = trainer(TOE, {}, steps_per_train=240, num_train_envs=4, update_freq=20, run_dir=False)
    result = run.train([learner, last], [1, 0], rotate=True, plot=False)
    assert set(result["episodes"]["seat/player_1"]) == {0, 1}
    rows = [row for batch in learner.seen for row in batch.action.tolist()]
    taken = [int(np.argmax(legal)) for batch in learner.seen for legal in batch.legal]  # type: ignore[union-attr]
    assert rows == taken and len(rows) > 80


def test_masks_are_by_entry():
    agents = ppo(TOE, {}, seed=0)
    before = weights(agents)
    trainer(TOE, {}, steps_per_train=60, run_dir=False).train(agents, [0, 1], rotate=True, plot=False)
    after = weights(agents)
    assert all((before[0][name] == after[0][name]).all() for name in after[0])
    assert any((before[1][name] != after[1][name]).any() for name in after[1])


def test_tests_rotate_too():
    agents = [mt.FunctionAgent(lambda observation: 0), ppo(ROCKS, {})[1]]
    results: list[Any] = []
    watch = mt.LambdaCallback(on_test_end=lambda moment: results.append(moment.data["result"].seats.tolist()))
    run = trainer(ROCKS, {"num_rounds": 1}, steps_per_train=30, episodes_per_test=4, run_dir=False, callbacks=[watch])
    run.train(agents, [0, 1], rotate=True, plot=False)
    assert results[0] == [[0, 1], [1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("network", [SMALL, mt.GRU(hidden=(), units=4)])
def test_resume_is_exact(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"num_train_envs": 3, "callbacks": [mt.Checkpoint(every_steps=1000)]}

    def line_up() -> list[Any]:
        agent = ppo(TOE, {}, network=network)[0]
        return [agent, mt.OpponentPool(agent, every_steps=9, size=2)]

    whole, rest = line_up(), line_up()
    expected = trainer(TOE, {}, steps_per_train=90, run_dir="whole", **settings).train(
        whole, [1, 0], rotate=True, plot=False
    )
    trainer(TOE, {}, steps_per_train=45, run_dir="half", **settings).train(line_up(), [1, 0], rotate=True, plot=False)
    again = trainer(TOE, {}, steps_per_train=90, run_dir=None, num_train_envs=3)
    with pytest.raises(ConfigError, match="rotate"):
        again.train(rest, [1, 0], plot=False, resume="half")
    result = again.train(rest, [1, 0], rotate=True, plot=False, resume="half")
    assert tables(result) == tables(expected)
    one, two = weights(rest[:1])[0], weights(whole[:1])[0]
    assert all((one[name] == two[name]).all() for name in one)


def test_what_cannot_rotate_is_refused():
    speaker = "marltrain/simple_speaker_listener_v4"
    agents = mt.make_agents("ppo", speaker, seed=0, network=SMALL)
    with pytest.raises(ConfigError, match="no two seats of equal spaces"):
        trainer(speaker, {}, steps_per_train=60, run_dir=False).train(agents, rotate=True, plot=False)
    with pytest.raises(ConfigError, match="tear teams apart"):
        run = trainer(TOE, {}, steps_per_train=60, team_reward={"a": ["player_1"], "b": ["player_2"]}, run_dir=False)
        run.train(ppo(TOE, {}), rotate=True, plot=False)
    shared = ppo(share=True, identify=True)
    with pytest.raises(ConfigError, match="identify=True"):
        trainer(Identity, steps_per_train=60, run_dir=False).train(shared, rotate=True, plot=False)
