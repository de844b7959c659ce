"""Rewards of teams in tests: different ones end the first test, before an update reads rows with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.core.remedies import on_command_line
from marltrain.core.seeds import child_seed
from marltrain.envs import make_vector
from marltrain.trainer.evaluating.equal_rewards import EqualRewards
from marltrain.trainer.seats.seats import Seating
from marltrain.trainer.seats.team_reward import TeamRewards
from tests.toys import Crowd
from tests.trainer.running import SMALL, trainer

REPLAY: Any = {"learning_starts": 0, "batch_size": 8}
ONE_REWARD = ["vdn", "qmix", "wqmix", "vdac"]
NONE = np.zeros(2, bool)


def made(algo: str, **more: Any) -> list[Any]:
    replaying = {} if algo == "vdac" else REPLAY
    return mt.make_agents(algo, Crowd, **{"seed": 0, "network": SMALL, **replaying, **more})


class Alike(Crowd):
    """Crowd, whose players receive 7 each; blue receives 8 once they are `apart`."""

    apart = False

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, {name: 8.0 if Alike.apart and name == "blue" else 7.0 for name in rewards}, *rest


class Parting(mt.Callback):
    """Sets them apart at an event."""

    def __init__(self, event: str) -> None:
        def part(moment: Any) -> None:
            Alike.apart = True

        setattr(self, event, part)


@pytest.fixture
def alike(monkeypatch):
    monkeypatch.setattr(Alike, "apart", False)
    return mt.make_agents("vdac", Alike, seed=0, network=SMALL)


def step(reward: Any, turn: Any = ((1, 1), (1, 1), (1, 1)), **events: Any) -> Any:
    """A Step of Crowd in two environments.  reward, turn, events: of red_0, blue and red_1, in each environment."""
    acts = np.array(turn, bool)
    none = np.zeros((3, 2), bool)
    data = {name: np.array(events.get(name, none), bool) for name in ("terminated", "truncated")}
    ended = np.array(events.get("ended", (0, 0)), bool)
    return SimpleNamespace(reward=np.array(reward, np.float32), turn=[acts[[0, 2]], acts[[1]]], ended=ended, **data)


def check_of(
    agents: Sequence[Any], team_reward: Any = None, learning: Sequence[int] = (1, 1, 1)
) -> tuple[EqualRewards, Any]:
    with make_vector(Crowd, num_envs=2) as envs:
        seating = Seating(envs.spec, agents, 0, stack=True)
    rewards = None if team_reward is None else TeamRewards(team_reward, envs.spec.names)
    return EqualRewards(envs.spec, seating.updated, rewards, np.array(learning, bool)), envs.spec


@pytest.fixture
def checked():
    """A function that checks two Steps one after another; the first one's rewards do not count."""
    check, _ = check_of(made("vdn"))

    def run(before: Any, after: Any, dropped: Any = NONE) -> None:
        check.record_actions(before)
        check.check(after, np.array(dropped, bool))

    return run


ALIKE = ((3, 5), (3, 5), (3, 5))
BLUE_DIFFERS = ((3, 5), (3, 6), (3, 5))


def test_equal_rewards_pass_and_different_ones_name_environment_step_and_players(checked):
    checked(step(BLUE_DIFFERS), step(ALIKE))
    text = (
        r"^vdn: the players of a team learn from one reward, and theirs differ in test environment 1 at step 2 of the "
        r'test: red_0 5, blue 6, red_1 5\. If they cooperate, give the trainer team_reward="mean" or "sum"'
    )
    with pytest.raises(AgentError, match=text):
        checked(step(ALIKE), step(BLUE_DIFFERS))


WITHOUT_BLUE = ((1, 1), (1, 0), (1, 1))


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        (step(ALIKE, WITHOUT_BLUE), step(BLUE_DIFFERS), NONE),  # it did not act
        (step(ALIKE), step(BLUE_DIFFERS, WITHOUT_BLUE), NONE),  # it acted, and waits: its transition goes on
        (step(ALIKE), step(BLUE_DIFFERS), (0, 1)),  # the episode was abandoned
    ],
)
def test_rewards_of_players_without_a_closed_transition_do_not_count(checked, before, after, dropped):
    checked(before, after, dropped)


@pytest.mark.parametrize(
    "events",
    [{"terminated": ((0, 0), (0, 1), (0, 0))}, {"truncated": ((0, 0), (0, 1), (0, 0))}, {"ended": (0, 1)}],
)
def test_the_end_of_an_episode_closes_a_transition(checked, events):
    with pytest.raises(AgentError, match=r"test environment 1 at step 1 .*: red_0 5, blue 6, red_1 5\. If"):
        checked(step(ALIKE), step(BLUE_DIFFERS, WITHOUT_BLUE, **events))


def test_teams_that_are_checked():
    """Not those whose players all get one reward, those that do not learn, and those without one reward."""

    def players(agents: Sequence[Any], *more: Any) -> list[list[int]]:
        return [team.tolist() for _, team in check_of(agents, *more)[0].teams]

    teams = {"reds": ["red_*"], "rest": ["blue"]}
    assert players(made("vdn")) == [[0, 1, 2]]
    assert players(made("qmix", teams=teams)) == [[0, 2], [1]]
    assert players(made("qmix", teams=teams), None, (1, 0, 0)) == [[0, 2]]
    assert players(made("qmix", teams=teams), None, (0, 1, 0)) == [[1]]
    assert players(made("vdn"), {"reds": ["red_*"]}) == [[0, 1, 2]]
    for team_reward in ("mean", "sum", lambda rewards: rewards.max(), {"all": ["*"]}):
        assert players(made("vdn"), team_reward) == []
    frozen = [mt.FrozenAgent(agent) for agent in made("vdn")]
    assert players(frozen, None, (0, 0, 0)) == []
    for algo in ("maddpg", "masac", "matd3"):
        continuous = mt.make_agents(algo, Crowd, seed=0, network=SMALL)
        assert players(continuous) == []


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize("algo", ONE_REWARD)
def test_different_rewards_end_the_first_test(algo, backend):
    run = trainer(Crowd, steps_per_train=200)
    with pytest.raises(AgentError, match=rf"^{algo}: .* differ in test environment .* team_reward=\"mean\" or \"sum\""):
        run.train(made(algo, backend=backend), [1, 1, 1], plot=False)
    assert run.run is not None and run.run.counters.env_steps == 0 and not run.folder.exists()


def test_on_the_command_line_the_remedy_is_an_option():
    with (
        on_command_line(),
        pytest.raises(AgentError, match=r"give --team-reward mean or --team-reward sum\..* --teams prefix"),
    ):
        trainer(Crowd).train(made("vdn"), [1, 1, 1], plot=False)


@pytest.mark.parametrize("algo", ["vdn", "vdac"])
def test_without_tests_the_first_update_finds_them_and_names_the_same_remedy(algo):
    with pytest.raises(AgentError, match=r"theirs differ in environment \d: .* give the trainer team_reward=\"mean\""):
        trainer(Crowd, test_freq=None, steps_per_train=200).train(made(algo), [1, 1, 1], plot=False)
    with on_command_line(), pytest.raises(AgentError, match=r"differ in environment \d: .* give --team-reward mean or"):
        trainer(Crowd, test_freq=None, steps_per_train=200).train(made(algo), [1, 1, 1], plot=False)


@pytest.mark.parametrize("settings", [{}, {"vector": "subproc", "num_workers": 2}])
@pytest.mark.parametrize("others", [False, True])
def test_workers_and_a_line_up_of_its_own_are_checked(settings, others):
    agents = made("vdn")
    line_up = [agents[0], mt.RandomAgent(), mt.RandomAgent()] if others else None
    with pytest.raises(AgentError, match="differ in test environment"):
        trainer(Crowd, **settings).train(agents, [1, 1, 1], plot=False, test_agents=line_up)


def test_every_test_before_the_first_update_is_checked(alike):
    """In 3 environments, 3 episodes of 4 steps end at env step 12, where the second test begins."""
    run = trainer(Alike, update_freq=100, test_freq=3, callbacks=[Parting("on_test_end")], steps_per_train=200)
    with pytest.raises(AgentError, match="differ in test environment 1 at step 1 of the test"):
        run.train(alike, [1, 1, 1], plot=False)
    assert run.run is not None and run.run.counters.env_steps == 12


def test_tests_after_an_update_are_not_checked(alike):
    """Updates check the rewards that agents learn from."""
    result = trainer(Alike, update_freq=21, callbacks=[Parting("on_update_end")], steps_per_train=21).train(
        alike, [1, 1, 1], plot=False
    )
    assert result["history"].updates.tolist() == [0, 1]
    assert result["history"]["return/blue"].iloc[1] > result["history"]["return/blue"].iloc[0]


def test_a_run_that_continues_in_another_environment_is_checked_again(alike):
    first = trainer(Alike, update_freq=21, steps_per_train=21)
    first.train(alike, [1, 1, 1], plot=False)
    with pytest.raises(AgentError, match="differ in test environment"):
        trainer(Crowd, run_dir=None, seed=None, update_freq=21, steps_per_train=21).train(
            alike, [1, 1, 1], plot=False, go_on=first
        )


def test_a_resumed_run_goes_on_as_it_would_have(alike):
    """Its tests after an update are not checked; its updates are."""
    saving: Any = {"update_freq": 21, "callbacks": [mt.Checkpoint(every_steps=1000)]}
    trainer(Alike, steps_per_train=21, **saving).train(alike, [1, 1, 1], plot=False)
    Alike.apart = True
    again = mt.make_agents("vdac", Alike, seed=0, network=SMALL)
    run = trainer(Alike, steps_per_train=63, run_dir=None, **saving)
    with pytest.raises(AgentError, match=r"differ in environment \d: "):
        run.train(again, [1, 1, 1], plot=False, resume="run")
    assert Path("run/checkpoints/21").is_dir()


class Once(Crowd):
    """Crowd, whose players receive 7 each, but for one step of all: in the tenth, blue receives 8."""

    steps = 0

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        Once.steps += 1
        return observations, {name: 8.0 if Once.steps == 10 and name == "blue" else 7.0 for name in rewards}, *rest


@pytest.mark.parametrize("algo", ["vdn", "qmix", "wqmix"])
def test_the_first_update_finds_a_difference_in_any_row(algo, monkeypatch):
    """One of 60 rows, and a batch of one: blue is there in even episodes only, environment by environment."""
    monkeypatch.setattr(Once, "steps", 0)
    agents = mt.make_agents(
        algo, Once, seed=0, network=SMALL, learning_starts=60, batch_size=1, update_freq=1, update_per_step=0.05
    )
    run = trainer(Once, test_freq=None, steps_per_train=600, num_train_envs=1, seed=_with_blue())
    with pytest.raises(AgentError, match="differ in environment 0: red_0 7, red_1 7, blue 8"):
        run.train(agents, [1, 1, 1], plot=False)
    assert run.run is not None and (run.run.counters.env_steps, run.run.counters.updates) == (60, 0)
    assert not run.folder.exists()


def _with_blue() -> int:
    """A seed whose third episode, with the steps 9 to 12, has blue."""
    return next(seed for seed in range(99) if child_seed(seed, "episode", "train", 0, 2) % 2 == 0)
