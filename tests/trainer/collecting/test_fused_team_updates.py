"""Updates of teams inside a fused call equal single updates."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.envs.native.toys import Crowd
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import SPREAD, Fading, Looking, assert_same, train
from tests.trainer.collecting.test_fused_updates import SETTINGS, Rounds, hold
from tests.trainer.running import tables, trainer, weights

MEAN: dict[str, Any] = {"team_reward": "mean"}
SMALL: dict[str, Any] = {"mixing_units": 3, "hyper_units": 5}


class Pair(Game):
    """Two players with one reward and legal actions; actions that add up to 4 end the episode, or its sixth step."""

    name = "pair_v0"

    def __init__(self) -> None:
        mask = spaces.Box(0, 1, (3,), np.int8)
        sees = spaces.Dict({"observation": spaces.Box(-99, 99, (2,)), "action_mask": mask})
        super().__init__(
            {name: (sees, spaces.Discrete(3)) for name in "ab"}, fields={"count": int}, limit=6, state_size=1
        )

    @staticmethod
    def reset(s, rules):
        s.count = 0

    @staticmethod
    def step(s, rules):
        s.count += 1
        s.reward[:] = s.action[0] - s.action[1]
        if s.action[0] + s.action[1] == 4:
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s, rules, p, obs):
        obs[0], obs[1] = s.count, p

    @staticmethod
    def legal(s, rules, p, mask):
        for action in range(3):
            mask[action] = action == 0 or (s.count + p) % 3 != action

    @staticmethod
    def state(s, rules, out):
        out[0] = s.count


def team(algo: str = "qmix", env: Any = SPREAD, **settings: Any) -> list[Any]:
    """Agents of compiled gradient steps that learn together, in small batches."""
    mixing = {"vdn": {}, "qmix": SMALL, "wqmix": {**SMALL, "central_units": 4}}[algo]
    own = {"learning_starts": 0, "update_per_step": 0.2, "epsilon": 0.5, **mixing}
    return mt.make_agents(algo, env, seed=0, **{**own, **SETTINGS, **settings})


@pytest.mark.parametrize(
    ("algo", "settings"),
    [
        pytest.param("vdn", {"capacity": 403, "learning_starts": 100}, id="vdn, a late start, the ring wraps"),
        pytest.param("qmix", {"tau": 0.1, "double": False, "mixer_learning_rate": 1e-3}, id="qmix, soft copies"),
        pytest.param("wqmix", {"alpha": mt.linear(0.1, 1.0, 400)}, id="wqmix"),
        pytest.param("vdn", {"normalize_rewards": True, "reward_scale": mt.linear(3.0, 1.0, 400)}, id="vdn, scaled"),
        *LONG * [
            pytest.param("qmix", {"capacity": 403, "target_sync": 3}, id="qmix, the ring wraps"),
            pytest.param("qmix", {"update_per_step": 0.7, "batch_size": 40}, id="several updates, of listed rows"),
            pytest.param("qmix", {"mixer_input": "joint"}, id="joined observations"),
            pytest.param("vdn", {"optimizer": "sgd"}, id="vdn, sgd"),
        ],
    ],
)  # fmt: skip
def test_fused_run_of_a_team_equals_single_steps(algo, settings):
    """Also global states at the ends of episodes, and the random numbers of draws from few and from many rows."""
    hold(SPREAD, lambda: team(algo, **settings), least=25, **MEAN)


@pytest.mark.parametrize("n_step", [3, *LONG * [1]])
def test_fused_run_of_a_team_with_masks_and_episodes_that_end_at_any_time(n_step):
    """Terminated rows have no next value, truncated rows the final one; the players' rewards are equal."""
    hold(Pair, lambda: team("qmix", Pair, capacity=403, n_step=n_step))


@pytest.mark.parametrize(
    ("settings", "mask"),
    [
        pytest.param({"n_step": 3}, [1, 0, 1], id="one does not learn, sums of three rewards"),
        pytest.param({"share": True, "tau": 0.1}, [1, 0, 1], id="one agent, which does not learn from all its seats"),
        *LONG * [pytest.param({"share": True}, None, id="one agent in all seats")],
    ],
)  # fmt: skip
def test_fused_run_of_teams_with_other_line_ups(settings, mask):
    hold(SPREAD, lambda: team(**settings), mask=mask, **MEAN)


@pytest.mark.parametrize("game", [Fading, *LONG * [Crowd]])
def test_rounds_are_separate_where_players_die_wait_or_are_absent(game):
    """In some batch steps of `Fading` all players act; their updates read others, too. Gradient steps are compiled."""
    hold(game, lambda: team("vdn", game, learning_starts=100), many=False, team_reward="sum")


@pytest.mark.parametrize("settings", [{}, *LONG * [{"share": True}, {"tau": 0.1}]])
def test_schedules_masks_and_batch_sizes_of_a_team_change_in_planned_rounds(settings):
    """In the batch steps of some masks, some of the seats that learn later did not learn: they are updated singly."""
    runs = []
    for callbacks in ([], [Looking()]):
        made: list[mt.DecentralizedTrainer] = []
        agents = team(epsilon=mt.linear(1.0, 0.0, 500), learning_rate=mt.linear(0.01, 0.0, 600), **settings)

        def train_fn(episodes, steps, made=made, agents=agents):
            made[0].learning_mask = np.arange(3) != episodes // 5 % 3
            agents[0].hyper.batch_size = 3 + episodes % 4

        made.append(trainer(SPREAD, {}, callbacks=callbacks, train_fn=train_fn, run_dir=f"run{len(callbacks)}",
                            num_train_envs=5, update_freq=5, steps_per_train=605, **MEAN))  # fmt: skip
        result = made[0].train(agents, [1, 1, 0], plot=False)
        runs.append((weights(agents), [agent.state().info for agent in agents], tables(result)))
    assert_same(*runs)


@pytest.mark.parametrize(("algo", "settings"), [("vdn", {"tau": 0.1}), *LONG * [("qmix", {"target_sync": 20})]])
def test_the_targets_of_an_agent_that_no_longer_learns_follow_in_planned_rounds(algo, settings):
    """Its mask is 0 from env step 300 on, and 61 updates later its target networks have come close to its networks."""
    runs: list[Any] = []
    rounds = Rounds()
    for callback in (rounds, Looking()):
        made: list[mt.DecentralizedTrainer] = []
        agents = team(algo, learning_rate=0.01, **settings)

        def train_fn(episodes, steps, made=made):
            if steps >= 300:
                made[0].learning_mask = [1, 0, 1]

        made.append(trainer(SPREAD, {}, callbacks=[callback], train_fn=train_fn, run_dir=f"run{len(runs)}",
                            num_train_envs=5, update_freq=5, steps_per_train=605, **MEAN))  # fmt: skip
        result = made[0].train(agents, [1, 1, 1], plot=False)
        runs.append((weights(agents), [agent.state().info for agent in agents], tables(result)))
    assert_same(*runs)
    assert max(data[0] for data in rounds.told if data[1] > 400) > 1
    for i, arrays in enumerate(runs[0][0]):
        distances = [np.abs(array - arrays[f"net/target_{name.removeprefix('net/')}"]).max()
                     for name, array in arrays.items() if name.startswith("net/q")]  # fmt: skip
        assert (max(distances) < 5e-4) == (i == 1)


def test_resume_of_a_team_between_planned_rounds():
    """A checkpoint in the midst of rounds of 15 env steps."""
    given = {"update_freq": 15, **MEAN}
    train(SPREAD, team(), callbacks=[Checkpoint(every_steps=83, keep=9)], steps_per_train=402, **given)
    again, agents = team(), team()
    output: Any = trainer(SPREAD, {}, num_train_envs=5, test_freq=15, episodes_per_test=3, run_dir=None,
                        steps_per_train=605, **given)  # fmt: skip
    result = output.train(again, [1, 1, 1], plot=False, resume="run/checkpoints/335")
    _, whole = train(SPREAD, agents, run_dir="whole", steps_per_train=605, **given)
    assert_same((weights(again), tables(result)), (weights(agents), whole[2]))


@pytest.mark.parametrize(
    ("settings", "gammas", "error"),
    [
        ({"team_reward": None}, (), r"learn from one reward, and theirs differ in environment \d: agent_0 -?[\d.]+"),
        (MEAN, (0.9, 0.8), r"have one discount, and gamma is 0.8, 0.9, 0.97"),
    ],
)
def test_rewards_or_discounts_that_differ_are_told(settings, gammas, error):
    """In the first planned update, in the words of a single one."""
    said = []
    for callbacks in ([], [Looking()]):
        agents = team(gamma=0.97)
        changing = mt.LambdaCallback(
            on_train_start=partial(set_gammas, agents, gammas)
        )  # before training, it is refused
        with pytest.raises(AgentError, match=error) as raised:
            train(
                SPREAD, agents, callbacks=[changing, *callbacks], update_freq=5, run_dir=f"run{len(callbacks)}",
                **settings,
            )  # fmt: skip
        said.append(str(raised.value))
    assert said[0] == said[1]


def set_gammas(agents, gammas, _):
    for agent, gamma in zip(agents, gammas, strict=False):
        agent.hyper.gamma = gamma
