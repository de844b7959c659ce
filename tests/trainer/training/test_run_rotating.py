"""`train(rotate=True)`: agents change seats; rewards, masks and tables are by entry of the line-up."""

from typing import Any, ClassVar

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


class TestWholeTeams:
    FOUR: ClassVar[dict[str, int]] = {"players": 4, "length": 3}
    SEATS: ClassVar[list[list[int]]] = [[0, 1, 2, 3], [2, 3, 0, 1]]

    def seats_of(self, result: Any) -> list[list[list[int]]]:
        """The seats of the entries in the episodes of each environment."""
        columns = [f"seat/player_{p}" for p in range(4)]
        return [own[columns].to_numpy().tolist() for _, own in result["episodes"].groupby("env")]

    def test_by_the_teams_of_rewards(self):
        """Players 0 and 2 against 1 and 3: entry 0 has seats 0 and 1 in turn, entry 2 seats 2 and 3; tests, too."""
        tests: list[Any] = []
        watch = mt.LambdaCallback(on_test_end=lambda moment: tests.append(moment.data["result"].seats.tolist()))
        teams = {"even": ["player_0", "player_2"], "odd": ["player_1", "player_3"]}
        run = trainer(Identity, self.FOUR, steps_per_train=36, run_dir=False, team_reward=teams, callbacks=[watch])
        seats = self.seats_of(run.train(ppo(Identity, self.FOUR), rotate=True, plot=False))
        orders = [[0, 1, 2, 3], [1, 0, 3, 2]]
        assert seats == [[orders[(env + j) % 2] for j in range(4)] for env in range(3)]
        assert tests[0] == orders

    def test_a_team_against_a_pool_of_teams(self):
        """The rewards of an entry are those of its seat: two agents that name the symbol, two that miss it."""
        named, missed = (Student(lambda seen, by=by: (seen.argmax() + by) % 3) for by in (0, 1))
        pool = mt.OpponentPool(members=[(mt.FunctionAgent(lambda symbol: (symbol + 1) % 3),) * 2])
        run = trainer(Identity, self.FOUR, steps_per_train=36, run_dir=False)
        result = run.train([named, missed, *pool.seats], [1, 1, 0, 0], rotate=True, plot=False)
        assert self.seats_of(result) == [[self.SEATS[(env + j) % 2] for j in range(4)] for env in range(3)]
        returns = result["episodes"][[f"return/player_{p}" for p in range(4)]].to_numpy()
        assert (returns == [3, 0, 0, 0]).all()
        assert all((batch.reward == 1).all() for batch in named.seen) and len(named.seen) > 2

    def test_teams_that_learn_together(self):
        agents = mt.make_agents(
            "qmix", Identity, env_args=self.FOUR, teams={"a": ["player_0", "player_1"], "b": ["player_2", "player_3"]},
            seed=0, network=SMALL, learning_starts=0, batch_size=4,
        )  # fmt: skip
        run = trainer(
            Identity,
            self.FOUR,
            steps_per_train=36,
            run_dir=False,
            team_reward={"a": ["player_[01]"], "b": ["player_[23]"]},
        )
        result = run.train(agents, rotate=True, plot=False)
        assert self.seats_of(result)[1] == [self.SEATS[(1 + j) % 2] for j in range(4)] and result["num_updates"] > 0


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
    four = {"players": 4, "length": 3}
    unequal = r"\(player_0, player_1, player_2\), \(player_3\)"
    for named, told in ((["player_0", "player_1", "player_2"], unequal), (["player_*"], "at least two")):
        teams = {"a": named}
        run = trainer(Identity, four, steps_per_train=60, team_reward=teams, run_dir=False)
        with pytest.raises(ConfigError, match=told):
            run.train(ppo(Identity, four), rotate=True, plot=False)
    shared = ppo(share=True, identify=True)
    with pytest.raises(ConfigError, match="identify=True"):
        trainer(Identity, steps_per_train=60, run_dir=False).train(shared, rotate=True, plot=False)
