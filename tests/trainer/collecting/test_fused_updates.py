"""Updates inside a fused call equal single updates."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.distributions.draws import normals
from marltrain.trainer.events.callbacks import Callback
from marltrain.trainer.saving.checkpoint import Checkpoint
from marltrain.trainer.updating.planned import PlannedScheduler
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import CARTPOLE, SPREAD, TAG, Looking, assert_same, train
from tests.trainer.running import dqn, tables, trainer, weights

SETTINGS: dict[str, Any] = {"jit_compile": True, "batch_size": 4, "network": mt.MLP((8,), "relu")}
"""Small batches: rows are drawn from a list of all rows at first, and by rejection after few env steps."""


PRIORITIZED = mt.Replay(prioritized=mt.Prioritized(beta=mt.linear(0.4, 1.0, 500)))


class Rounds(Callback):
    """Records the number of rounds of each `on_update_end`, and its env step."""

    only_watches: ClassVar[bool] = True

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int, int]] = []

    def on_update_start(self, moment):
        self.begun = moment.env_steps

    def on_update_end(self, moment):
        late = 5 if moment.trainer.settings.collect == "overlap" else 0  # such updates end when the next ones begin
        assert self.begun in (moment.env_steps, moment.env_steps - late)
        self.told.append((moment.data["rounds"], moment.env_steps, moment.updates, moment.gradient_steps))


class Acting(Callback):
    """A callback without `only_watches`, which is called for each round."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int]] = []

    def on_update_end(self, moment):
        assert moment.data["rounds"] == 1
        self.told.append((moment.env_steps, moment.updates, moment.gradient_steps))


def hold(env, make, *, many=True, least=40, **settings):
    """Compare a run with the same run in single steps.

    many: whether some rounds were made several at once.  least: rounds.
    """
    rounds, given = Rounds(), {"update_freq": 5, "steps_per_train": 605, "test_freq": 25, **settings}
    _quick, result = train(env, make(), callbacks=[rounds], run_dir="quick", **given)
    _slow, expected = train(env, make(), callbacks=[Looking()], run_dir="slow", **given)
    assert_same(result, expected)
    assert (max(data[0] for data in rounds.told) > 1) == many
    assert sum(data[0] for data in rounds.told) >= least
    return result


def learners(env=SPREAD, **settings):
    return dqn(env, {}, **{**SETTINGS, **settings})


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        pytest.param(SPREAD, {}, id="hard copies"),
        pytest.param(SPREAD, {"tau": 0.1, "double": False}, id="soft copies"),
        pytest.param(SPREAD, {"update_per_step": 0.7}, id="fractions of updates"),
        pytest.param(SPREAD, {"optimizer": "rmsprop", "max_grad_norm": None}, id="rmsprop"),
        pytest.param(SPREAD, {"backend": "tensorflow", "tau": 0.1}, id="tensorflow"),
        *LONG
        * [
            pytest.param(SPREAD, {"capacity": 403}, id="the ring wraps"),
            pytest.param(SPREAD, {"update_per_step": 0.05}, id="rounds without updates"),
            pytest.param(SPREAD, {"learning_starts": 400}, id="a late start"),
            pytest.param(SPREAD, {"optimizer": "sgd", "batch_size": 7}, id="sgd"),
            pytest.param(SPREAD, {"optimizer": "adamax", "weight_decay": 0.1}, id="adamax"),
            pytest.param(SPREAD, {"network": mt.MLP((180, 180))}, id="wide layers"),
            pytest.param(TAG, {"capacity": 403}, id="two groups"),
            pytest.param(TAG, {"capacity": 203, "memory": PRIORITIZED}, id="priorities in two groups"),
        ],
        pytest.param(CARTPOLE, {"capacity": 403, "network": mt.MLP((7, 3), "tanh")}, id="episodes end at any time"),
        pytest.param(SPREAD, {"reward_scale": mt.linear(9.0, 1.0, 400)}, id="a factor of rewards"),
        pytest.param(TAG, {"normalize_rewards": True, "memory": PRIORITIZED}, id="normalized rewards by priorities"),
    ],
)
def test_fused_run_equals_single_steps(env, settings):
    hold(env, lambda: learners(env, **settings), least=25)


class Halves(DQNAlgorithm):
    """DQN whose loss is divided between two phases with networks of their own; the second one is not used to act.

    Rewards get noise of each phase. The second network learns the negative rewards, in every third pass. Both losses
    have one name, and norms of their own.
    """

    name = "halves"

    def compiled_form(self):
        return super().compiled_form()

    def networks(self):
        own = super().networks()
        return {**own, "other": own["q"]}

    def targets(self):
        return ("q", "other")

    @property
    def phases(self):
        (phase,) = super().phases

        def draw(rngs, rows):
            return {"noise": {"reward": normals(rngs, rows, 1)}, "shift": normals(rngs, rows, 2)}

        def of(name, sign):
            def nets_of(nets):
                return {"q": nets[name], "target_q": nets[f"target_{name}"]}

            def targets(ops, nets, batch, hyper):
                batch.reward = sign * (batch.reward + batch.noise["reward"][..., 0] + ops.sum(batch.shift, -1))
                assert phase.targets is not None
                return phase.targets(ops, nets_of(nets), batch, hyper)

            def loss(ops, nets, batch, hyper):
                value, metrics = phase.loss(ops, nets_of(nets), batch, hyper)
                return value, {**metrics, f"of_{name}": value}

            return replace(phase, name=name, trains=(name,), draw=draw, targets=targets, loss=loss)

        return of("q", 1.0), replace(of("other", -1.0), every=3, row_error=None)


class HalvesAgent(mt.DQN):
    algorithm_class = Halves


def halves(**settings):
    own = {"learning_starts": 0, "update_per_step": 0.2, "epsilon": 0.5, **SETTINGS, **settings}
    return mt.make_agents(HalvesAgent, SPREAD, seed=0, **own)


@pytest.mark.parametrize(
    ("settings", "mask"),
    [
        ({}, [1, 0, 1]),
        ({"update_per_step": 0.7, "memory": PRIORITIZED}, None),
        *LONG * [({}, None), ({"backend": "tensorflow"}, [1, 0, 1])],
    ],
)
def test_fused_run_of_phases_with_random_numbers_and_of_a_delayed_phase(settings, mask):
    """The first update of a user's algorithm is compared with the framework's, so it is made alone."""
    hold(SPREAD, lambda: halves(**settings), mask=mask, least=25)


def test_plans_end_before_they_need_too_many_random_numbers(monkeypatch):
    """An update of three agents needs 72 numbers, with those of the delayed phase."""
    monkeypatch.setattr("marltrain.policies.learner.planned.planned_updates.MOST_NUMBERS", 300)
    hold(SPREAD, halves)


def test_a_delayed_phase_that_gives_the_errors_of_rows_is_updated_singly():
    class Delayed(Halves):
        def compiled_form(self):
            return super().compiled_form()

        @property
        def phases(self):
            return tuple(replace(phase, every=2) for phase in super().phases)

    kind = type("DelayedAgent", (mt.DQN,), {"algorithm_class": Delayed})
    own = {"seed": 0, "learning_starts": 0, "update_per_step": 0.2, "epsilon": 0.5, **SETTINGS, "memory": PRIORITIZED}
    hold(SPREAD, lambda: mt.make_agents(kind, SPREAD, **own), many=False)


def test_rounds_are_separate_without_compiled_gradient_steps():
    hold(SPREAD, lambda: learners(jit_compile=False), many=False)


def test_fused_updates_with_schedules_and_partial_exploration():
    def make():
        first, *others = learners(epsilon=mt.linear(1.0, 0.0, 500))
        first.hyper.learning_rate = mt.linear(0.01, 0.0, 600)
        first.hyper.gamma = mt.linear(0.9, 0.99, 600)
        others[0].hyper.epsilon = 0.0
        others[1].hyper.max_grad_norm = 0.01
        return [first, *others]

    hold(SPREAD, make, exploring=[1, 0, 1])


@pytest.mark.parametrize(
    ("line_up", "mask"),
    [
        pytest.param(lambda: [*learners()[:2], mt.FrozenAgent(learners()[2])], [1, 1, 0], id="one is frozen"),
        pytest.param(learners, [1, 0, 1], id="one does not learn"),
        pytest.param(lambda: learners(share=True), None, id="one agent in all seats"),
        pytest.param(lambda: [*learners()[:2], *learners(network=mt.MLP((3,), "relu"))[2:]], None, id="two networks"),
        pytest.param(lambda: [*learners()[:2], *learners(jit_compile=False)[2:]], None, id="two ways to compute"),
        pytest.param(lambda: [*learners()[:2], *learners(update_freq=15)[2:]], None, id="two paces"),
    ],
)
def test_fused_run_with_different_line_ups(line_up, mask):
    several = not any(not agent.backend.jit_compile for agent in line_up() if hasattr(agent, "backend"))
    hold(SPREAD, line_up, mask=mask, many=several)


def test_fused_run_with_shared_memory():
    hold(SPREAD, lambda: learners(capacity=300), shared_memory=True)


def test_fused_run_with_asynchronous_updates():
    """With a learning thread rounds are not planned, and compiled gradient steps run in the thread."""
    hold(SPREAD, learners, many=False, collect="overlap")


def test_budget_of_updates_is_exact():
    result = hold(SPREAD, lambda: learners(update_per_step=0.5), least=33, updates_per_train=82, steps_per_train=None)
    assert result[4][2:] == [82, "updates_per_train"]


def test_hyperparameters_changed_in_a_hook_are_used_in_planned_rounds():
    """A new learning rate after every 10 episodes: planned rounds are planned again, and their numbers drawn again."""
    runs = []
    for callbacks in ([], [Looking()]):
        agents = halves()

        def train_fn(episodes, steps, agents=agents):
            agents[1].hyper.learning_rate = 0.001 * (1 + episodes % 3)
            agents[0].hyper.epsilon = 0.1 * (episodes % 5)

        runs.append(train(SPREAD, agents, callbacks=callbacks, train_fn=train_fn, run_dir=f"run{len(callbacks)}",
                          update_freq=5, steps_per_train=605)[1])  # fmt: skip
    assert_same(*runs)


def test_batch_size_changed_in_a_hook_is_used_in_planned_rounds():
    """Another batch size after every 10 episodes, larger and smaller."""
    runs = []
    for callbacks in ([], [Looking()]):
        agents = learners()

        def train_fn(episodes, steps, agents=agents):
            agents[1].hyper.batch_size = 3 + episodes % 4

        runs.append(train(SPREAD, agents, callbacks=callbacks, train_fn=train_fn, run_dir=f"run{len(callbacks)}",
                          update_freq=5, steps_per_train=605)[1])  # fmt: skip
    assert_same(*runs)


def test_masks_changed_in_a_hook_apply_to_planned_rounds():
    runs = []
    for callbacks in ([], [Looking()]):
        made: list[mt.DecentralizedTrainer] = []

        def train_fn(episodes, steps, made=made):
            made[0].learning_mask = np.arange(3) != episodes // 5 % 3

        agents = learners(capacity=403, learning_starts=40)
        made.append(trainer(SPREAD, {}, callbacks=callbacks, train_fn=train_fn, run_dir=f"run{len(callbacks)}",
                            num_train_envs=5, update_freq=5, steps_per_train=605))  # fmt: skip
        result = made[0].train(agents, [1, 1, 0], plot=False)
        runs.append((weights(agents), [agent.state().info for agent in agents], tables(result)))
    assert_same(*runs)


def test_callback_without_only_watches_is_called_for_each_round():
    """The run is the same; a callback with `only_watches` receives the same updates."""
    acting, watching = Acting(), Rounds()
    given = {"update_freq": 5, "steps_per_train": 605}
    one = train(SPREAD, learners(), callbacks=[acting], run_dir="acting", **given)[1]
    other = train(SPREAD, learners(), callbacks=[watching], run_dir="watching", **given)[1]
    assert_same(one, other)
    assert len(acting.told) == sum(data[0] for data in watching.told) == acting.told[-1][1]
    ends = np.cumsum([data[0] for data in watching.told]) - 1
    assert [data[2:] for data in watching.told] == [acting.told[end][1:] for end in ends]
    assert all(data[1] >= acting.told[end][0] for data, end in zip(watching.told, ends, strict=True))
    assert len(watching.told) < len(acting.told) / 2


def test_on_update_start_without_only_watches_disables_planned_rounds():
    agents, rounds = learners(), Rounds()
    changing = mt.LambdaCallback(on_update_start=lambda moment: setattr(agents[0].hyper, "epsilon", 0.5))
    train(SPREAD, agents, callbacks=[changing, rounds], update_freq=5, steps_per_train=505)
    assert {data[0] for data in rounds.told} == {1}


def test_reported_metrics_are_means_over_the_rounds():
    class Noting(Callback):
        def __init__(self) -> None:
            self.sums: dict[tuple[str, str], list[float]] = {}

        def on_update_end(self, moment):
            for agent, values in moment.data["metrics"].items():
                for name, value in values.items():
                    entry = self.sums.setdefault((agent, name), [0.0, 0])
                    entry[0] += value * moment.data["rounds"]
                    entry[1] += moment.data["rounds"]

    class Watching(Noting):
        only_watches: ClassVar[bool] = True

    one, other = Noting(), Watching()
    for i, callback in enumerate((one, other)):
        train(SPREAD, learners(update_per_step=0.7), callbacks=[callback], run_dir=f"{i}", update_freq=5,
              steps_per_train=605)  # fmt: skip
    assert one.sums.keys() == other.sums.keys()
    for key, (total, count) in one.sums.items():
        assert other.sums[key] == [pytest.approx(total, rel=1e-9), count]


def test_resume_between_planned_rounds(tmp_path):
    """A checkpoint every 83 env steps, at any place among rounds of 15, whose random numbers are drawn ahead."""
    given = {"update_freq": 15, "steps_per_train": 705}
    train(SPREAD, halves(), callbacks=[Checkpoint(every_steps=83, keep=9)], **{**given, "steps_per_train": 502})
    written = sorted(int(path.name) for path in (tmp_path / "run/checkpoints").iterdir())
    assert written == [85, 170, 250, 335, 415, 500, 505]
    again, agents = halves(), halves()
    output: Any = trainer(SPREAD, {}, num_train_envs=5, test_freq=15, episodes_per_test=3, run_dir=None, **given)
    result = output.train(again, [1, 1, 1], plot=False, resume="run/checkpoints/335")
    _, whole = train(SPREAD, agents, run_dir="whole", **given)
    assert_same((weights(again), tables(result)), (weights(agents), whole[2]))


def test_fused_run_with_two_calls_of_train():
    runs = []
    for callbacks in ([], [Looking()]):
        agents = learners(CARTPOLE, capacity=403)
        result: Any = trainer(CARTPOLE, {}, callbacks=callbacks, num_train_envs=5, update_freq=5, steps_per_train=505)
        result.train(agents, [1], plot=False)
        runs.append((weights(agents), tables(result.train(agents, [1], plot=False))))
    assert_same(*runs)


def test_non_finite_loss_names_its_update():
    """The second agent's values overflow after some updates; the last update changes no weight."""
    said, left = [], []
    for callbacks in ([], [Looking()]):
        agents = learners(optimizer="sgd", max_grad_norm=None)
        agents[1].hyper.learning_rate = 10.0
        state = agents[1].state()
        for name, array in state.arrays.items():
            if name.startswith("net/"):
                array *= 40
        agents[1].restore(state)
        with pytest.raises(AgentError, match=r"^the agent of agent_1: .* became .* in update \d+ \(env step") as raised:
            train(SPREAD, agents, callbacks=callbacks, update_freq=5, steps_per_train=1005, run_dir=f"{len(callbacks)}")
        said.append(str(raised.value))
        episodes = pd.read_parquet(f"{len(callbacks)}/episodes.parquet").drop(columns="seconds")
        left.append((weights(agents), episodes.to_csv()))
        assert all(np.isfinite(array).all() for array in left[-1][0][1].values())
    assert said[0] == said[1]
    assert int(re.findall(r"update (\d+)", said[0])[0]) > 50
    np.testing.assert_equal(left[0], left[1])


def test_rounds_are_planned_only_for_compiled_updates(monkeypatch):
    """No rounds are planned with a learning thread, or with a callback that may change agents."""
    planned = []
    plan = PlannedScheduler._new_plan

    def noting(self, *args):
        result = plan(self, *args)
        planned.append(result)
        return result

    monkeypatch.setattr(PlannedScheduler, "_new_plan", noting)
    given = {"update_freq": 5, "steps_per_train": 505}
    train(SPREAD, learners(), callbacks=[Acting()], run_dir="one", **given)
    train(SPREAD, learners(), callbacks=[Looking()], run_dir="two", **given)
    assert not planned
    train(SPREAD, learners(), collect="overlap", run_dir="three", **given)
    assert not any(planned)
    train(SPREAD, learners(), run_dir="four", **given)
    assert any(planned)
