"""The members that play: one draw for all seats of a set, results by seat, tests in turn."""

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.envs.python.probe import probe
from marltrain.envs.registry import resolve
from marltrain.trainer.collecting.cast import Cast
from marltrain.trainer.seats.seats import Seating
from tests.toys import Identity
from tests.trainer.running import ppo, trainer

ROCKS = "marltrain/rock_paper_scissors_v1"


class Told(mt.MixedAgent):
    """A set that draws its members in turn, and keeps what it is told."""

    def draw(self, matches):
        return np.arange(len(matches)) % 2

    def finished(self, members, own, others, matches):
        self.told = members.tolist(), own.tolist(), others.tolist()


def cast_of(agents: list[Any], **args: Any) -> Cast:
    spec = probe(resolve(Identity, {"players": len(agents), "length": 3, **args}))
    return Cast(spec, Seating(spec, agents, 0, stack=True).learners, 4)


def hands() -> list[Any]:
    return [mt.FunctionAgent(lambda observation, hand=hand: hand) for hand in range(3)]


def test_all_seats_of_a_set_have_one_member_and_its_mean_return():
    told = Told(hands()[:2])
    cast = cast_of([mt.RandomAgent(), told, told, mt.RandomAgent()])
    cast.draw(np.array([1, 3]))
    assert cast.numbers[0].tolist() == [0, 0, 0, 1]
    members = cast.of(told, 2)
    assert members is not None and members.tolist() == [[0, 0, 0, 1] * 2]
    assert cast.of(mt.RandomAgent(), 1) is None
    columns = cast.finished(np.array([3, 0]), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 9.0]]))
    assert told.told == ([1, 0], [4.0, 5.0], [4.0, 5.5])
    assert [column.tolist() for column in columns] == [[1, 0]] * 2
    assert list(cast.columns) == ["member/player_1", "member/player_2"]


def test_test_episodes_are_played_by_each_member_in_turn():
    mixed = mt.MixedAgent(hands())
    run = trainer(ROCKS, {"num_rounds": 1}, num_test_envs=2, run_dir=False)
    returns = run.test([mt.FunctionAgent(lambda observation: 0), mixed], 6).returns[:, 0]
    assert np.sign(returns).tolist() == [0, -1, 1, 0, -1, 1]


def test_where_no_member_is_chosen_a_set_is_refused(capsys):
    """Before anything is shown; the error names the player, the members and the remedy, which works."""
    mixed = mt.MixedAgent(hands())
    agents = [mt.FunctionAgent(lambda observation: 0), mixed]
    said = r"'player_1'.*pool\.member\(2\).* 0, 1, 2"
    with pytest.raises(AgentError, match=said):
        mt.demonstrations(ROCKS, [ppo(ROCKS, {})[0], mixed], episodes=1, seed=0)
    with pytest.raises(AgentError, match=said):
        mt.play(ROCKS, agents, text=True)
    assert capsys.readouterr().out == ""
    assert mt.play(ROCKS, [agents[0], mixed.member(1)], env_args={"num_rounds": 1}, text=True).tolist() == [[-1, 1]]
