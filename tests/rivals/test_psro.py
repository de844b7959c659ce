"""PSRO in games of known equilibria, its payoffs and gains by hand, and what it refuses."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from marltrain.rivals.saved_psro import SavedPSRO
from marltrain.storage.files import with_checksum
from marltrain.storage.json_files import read_json, write_json
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.training.run import Run
from tests.tools.killing import Killed, kill

ROCKS, ONCE = "marltrain/rock_paper_scissors_v1", {"num_rounds": 1, "observe_last_actions": False}
ODD = [[[2.0, -2.0], [-1.0, 1.0]], [[-1.0, 1.0], [1.0, -1.0]]]
DQN: dict[str, Any] = {
    "network": mt.MLP(()), "learning_rate": 0.05, "gamma": 0.0, "learning_starts": 64, "epsilon": 1.0,
    "trainer": {"steps_per_train": 480, "num_train_envs": 16, "update_freq": 16, "batch_size": 64},
    "episodes": 4, "sampled": False,
}  # fmt: skip


def hands(population: list[mt.Agent]) -> list[int]:
    """Return the actions of the trained policies, without the first, random one."""
    return [int(agent.act(np.ones(1, np.float32))) for agent in population[1:]]


def test_rock_paper_scissors_by_best_responses():
    """Each hand is the best response to the one before, and the equilibrium of all three is a third of each."""
    result = mt.psro("dqn", ROCKS, ONCE, iterations=4, seed=1, **DQN)
    rows, columns = map(hands, result.populations)
    assert {*rows} == {*columns} == {0, 1, 2}
    table = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    np.testing.assert_array_equal(result.payoffs[0, 1:, 1:], table[np.ix_(rows, columns)])
    np.testing.assert_array_equal(result.payoffs[1], -result.payoffs[0])
    for population, share in zip((rows, columns), result.strategies, strict=True):
        played = np.bincount(population, share[1:], minlength=3)
        assert played + share[0] / 3 == pytest.approx(
            [1 / 3] * 3, abs=0.15
        )  # the random policy's payoffs are estimated
    assert len(result.gains) == 4
    assert result.history().shape == (4, 2)


def test_a_game_of_two_by_two_actions_and_its_value():
    result = mt.psro("dqn", "marltrain/matrix_game_v1", {"payoffs": ODD, **ONCE}, iterations=3, seed=0,
                     **{**DQN, "episodes": 200})  # fmt: skip
    x, y = result.strategies
    assert x @ result.payoffs[0] @ y == pytest.approx(0.2, abs=0.1)
    for agent, share in zip(result.agents(), (x, y), strict=True):
        assert isinstance(agent, mt.MixedAgent)
        assert agent.shares == pytest.approx(share)


def test_exploitability_is_computed_after_each_iteration():
    settings = {**DQN, "learning_rate": 0.01, "network": mt.MLP((16,)), "gamma": 1.0}
    result = mt.psro(
        "dqn", "marltrain/kuhn_poker_v1", iterations=2, meta_strategy="uniform", exploitability=True, seed=0, **settings
    )
    assert [share.tolist() for share in result.strategies] == [[1 / 3] * 3] * 2
    assert len(result.exploitability) == 2
    assert mt.exploitability(result.agents(), "marltrain/kuhn_poker_v1") == result.exploitability[-1]
    assert list(result.history().columns) == ["gain_0", "gain_1", "exploitability"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"meta_strategy": "nahs"}, "no meta-strategy is called 'nahs'.*nash"),
        ({"iterations": 0}, "iterations and episodes of at least 1, got 2 players, iterations=0"),
        ({"env": "marltrain/simple_spread_v3"}, "expected a game of 2 players.*got 3 players"),
    ],
)
def test_what_it_refuses(arguments, message):
    with pytest.raises(ConfigError, match=message):
        mt.psro("dqn", **{"env": ROCKS, "iterations": 1, **arguments})


class TestResume:
    """Calls that end in the middle, and the same call once more."""

    ARGUMENTS: ClassVar[dict[str, Any]] = {**DQN, "iterations": 2, "meta_strategy": "uniform", "seed": 3}

    @functools.cached_property
    def uninterrupted(self) -> mt.PSROResult:
        return self.run()

    def run(self, folder: Any = None, **more: Any) -> mt.PSROResult:
        arguments = {**self.ARGUMENTS, **more}
        arguments["trainer"] = {
            **self.ARGUMENTS["trainer"], "steps_per_train": 96, **more.get("trainer", {}),
            **({} if folder is None else {"callbacks": [mt.Checkpoint(every_steps=32)]}),
        }  # fmt: skip
        return mt.psro("dqn", ROCKS, ONCE, resume=folder, **arguments)

    def assert_equal(self, found: mt.PSROResult, expected: mt.PSROResult) -> None:
        for name, value in expected.numbers().items():
            np.testing.assert_array_equal(found.numbers()[name], value, err_msg=name)
        for mine, theirs in zip(found.populations, expected.populations, strict=True):
            for own, other in zip(mine[1:], theirs[1:], strict=True):
                arrays = other.state().arrays
                assert all((array == arrays[name]).all() for name, array in own.state().arrays.items())

    @pytest.mark.parametrize(
        ("owner", "name", "call", "left"),
        [
            (Run, "collect", 4, 22),  # in the first player's training, after 3 of 6 batch steps
            (Run, "collect", 10, 16),  # in the second player's
            (DecentralizedTrainer, "test", 3, 12),  # after the trainings of the first iteration, among its payoffs
            (SavedPSRO, "_write", 2, 12),  # when the policies are saved, and the results are not
            (Run, "collect", 21, 4),  # in the second iteration
        ],
    )
    def test_results_are_equal_after_a_kill(self, owner, name, call, left, tmp_path, monkeypatch):
        """left: batch steps that the resumed call makes, of 24; there is a checkpoint every 2."""
        with monkeypatch.context() as patch, pytest.raises(Killed):
            kill(patch, owner, name, call)
            self.run(tmp_path / "saved")
        expected, made = self.uninterrupted, list[Run]()
        with monkeypatch.context() as patch:
            collect = Run.collect

            def counted(run: Run) -> int:
                made.append(run)
                return collect(run)

            patch.setattr(Run, "collect", counted)
            self.assert_equal(self.run(tmp_path / "saved", seed=None), expected)
        assert len(made) == left
        assert not (tmp_path / "saved" / "responses").exists()

    def test_an_ended_call_trains_nothing_and_goes_on_with_more_iterations(self, tmp_path, monkeypatch):
        first = self.run(tmp_path, iterations=1)
        with monkeypatch.context() as patch:
            kill(patch, Run, "collect", 1)
            self.assert_equal(self.run(tmp_path, iterations=1), first)
        self.assert_equal(self.run(tmp_path), self.uninterrupted)
        with pytest.raises(ConfigError, match=r"2 iterations, and iterations=1"):
            self.run(tmp_path, iterations=1)

    def test_other_arguments_and_folders_are_refused(self, tmp_path):
        folder = tmp_path / "saved"
        self.run(folder, iterations=1)
        for more, named in (
            ({"seed": 4}, "seed"), ({"gamma": 0.5}, "gamma"), ({"episodes": 5}, "episodes"),
            ({"sampled": True}, "sampled"), ({"meta_strategy": "nash"}, "meta_strategy"),
            ({"trainer": {"steps_per_train": 112}}, "steps_per_train"),
        ):  # fmt: skip
            with pytest.raises(ConfigError, match=rf"cannot be resumed by this call of psro: .*{named}"):
                self.run(folder, **more)
        with pytest.raises(ConfigError, match="leave run_dir out"):
            self.run(folder, trainer={"run_dir": "mine"})
        (tmp_path / "mine.txt").touch()
        with pytest.raises(ConfigError, match=r"holds 'mine\.txt', and no psro\.json"):
            self.run(tmp_path)
        file = folder / "psro.json"
        file.write_text(
            file.read_text(encoding="utf-8").replace('"sampled": false', '"sampled": true'), encoding="utf-8"
        )
        with pytest.raises(SaveError, match=r"psro\.json"):
            self.run(folder)

    def test_results_of_other_shapes_are_refused(self, tmp_path):
        self.run(tmp_path, iterations=1)
        file = tmp_path / "psro.json"
        content = {name: value for name, value in read_json(file).items() if name != "sha256"}
        for results, named in (
            ({"strategies": [[0.5, 0.5], [1.0]]}, "strategies"), ({"payoffs": [[[0.0]]] * 2}, "payoffs"),
            ({"exploitability": [0.1, 0.2]}, "exploitability"), ({"gains": [[0.1]]}, "gains"),
        ):  # fmt: skip
            write_json(file, with_checksum({**content, "results": {**content["results"], **results}}))
            with pytest.raises(SaveError, match=named):
                self.run(tmp_path)
