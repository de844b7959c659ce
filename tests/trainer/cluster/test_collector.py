"""Runners: results equal those of one process, whatever happens to the runners."""

import dataclasses
import os
import signal
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, WorkerError
from marltrain.trainer.cluster.messages import ActingTask
from marltrain.trainer.cluster.runners import RunnerVectorEnv
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.cluster.local_runners import local_runners  # noqa: F401 - a fixture
from tests.trainer.cluster.training import CASES, agents_of, assert_equal, trained, trainer_of

EXACT = {"ppo": 0.0, "dqn": 0.0, "vdn": 1e-6, "gru": 1e-6}
"""Tolerance of weights: 0 where acts are exact by row."""


def send(sign: int, run: Any, w: int) -> None:
    """Send a signal to the process of a runner."""
    actor, ray = run.context.envs.pool._actors[w]._handle, run.context.envs.pool._cluster.ray
    os.kill(ray.get(actor.__ray_call__.remote(lambda self: os.getpid()), timeout=60), sign)


class Meddler(mt.Callback):
    """Changes a mask and an epsilon between updates, then sends a signal to a runner."""

    def __init__(self, agents: Any, sign: int | None) -> None:
        self.agents, self.sign, self.ended = agents, sign, 0

    def on_episode_end(self, moment):
        self.ended += 1
        if self.ended == 4:
            moment.trainer.exploration_mask = [0]
        if self.ended == 6:
            self.agents[0].hyper.epsilon = 0.9
            moment.trainer.exploration_mask = [1]
        if self.ended == 8 and self.sign is not None:
            send(self.sign, moment.trainer.run, 1)


def meddled(sign: int | None = None, **settings: Any) -> Any:
    agents = agents_of("dqn")
    trainer = trainer_of("dqn", callbacks=[Meddler(agents, sign)], record=["_elapsed_steps"], **settings)
    return trainer.train(agents, [1], plot=False), [agent.state() for agent in agents]


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP] if LONG else [signal.SIGKILL])
def test_two_runners_equal_one_process_with_changes_in_the_middle_of_a_fragment_and_a_lost_runner(sign):
    """5 environments in 2 runners; masks and epsilon change between updates, and a runner is killed or frozen."""
    expected, found = meddled(), meddled(sign, runners=2, timeout=15.0 if sign == signal.SIGSTOP else 60.0)
    assert_equal(expected, found, tolerance=0.0)
    episodes, faults = found[0]["episodes"], found[0]["faults"]
    assert episodes["record/_elapsed_steps"].tolist() == episodes["length"].tolist()
    kinds = {signal.SIGKILL: "died", signal.SIGSTOP: "timeout"}
    assert faults["kind"].tolist() == [kinds[sign]] and "Its fragment is collected again" in faults["message"].iloc[0]
    assert sign == signal.SIGKILL or "(timeout; raise it if" in faults["message"].iloc[0]
    assert found[0]["bytes_to_runners"] > 10_000 and found[0]["bytes_from_runners"] > 10_000
    assert expected[0]["bytes_to_runners"] == 0


LONG_CASES = [(case, runners) for case in CASES for runners in (1, 2, 3)] if LONG else [("vdn", 2)]


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(("case", "runners"), LONG_CASES)
def test_runners_equal_one_process(case, runners):
    assert_equal(trained(case), trained(case, runners=runners), tolerance=EXACT[case])


def resumed(tmp_path: Any, first: Any, second: Any) -> Any:
    """Return the result of a run that is stopped at a checkpoint in the middle of a fragment, and resumed.

    Runners of the first part are lost while the checkpoint is written: it needs nothing from them.
    """
    agents, checkpoint = agents_of("dqn"), mt.Checkpoint(every_episodes=7)
    folder = tmp_path / f"{first}-{second}"
    trainer: Any = trainer_of("dqn", run_dir=folder, callbacks=[checkpoint], runners=first, episodes_per_train=7)
    state = RunnerVectorEnv.state

    def disturbed(envs: Any) -> Any:
        send(signal.SIGKILL, trainer.run, 0)
        return state(envs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunnerVectorEnv, "state", disturbed)
        assert trainer.train(agents, [1], plot=False)["num_faults"] == 0
    agents = agents_of("dqn")
    trainer = trainer_of("dqn", run_dir=folder, callbacks=[mt.Checkpoint(every_episodes=7)], runners=second)
    result = trainer.train(agents, [1], plot=False, resume=folder)
    return result, [agent.state() for agent in agents]


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(("first", "second"), [(2, 3), (3, None), (None, 1)] if LONG else [(2, None)])
def test_a_run_is_resumed_with_another_number_of_runners(tmp_path, first, second):
    assert_equal(trained("dqn"), resumed(tmp_path, first, second), tolerance=0.0)


class Marked(Identity):
    """Marked as not reproducible, so that runners are never asked to repeat anything."""

    metadata: ClassVar[dict[str, Any]] = {"name": "marked", "reproducible": False}


class Drifting(Identity):
    """Its rewards count all steps of the process, which a repetition does not give again."""

    total: ClassVar[list[int]] = [0]

    def step(self, actions):
        self.total[0] += 1
        observations, rewards, *rest = super().step(actions)
        return observations, dict.fromkeys(rewards, float(self.total[0])), *rest


def ended_in_a_fragment(env: Any, **settings: Any) -> Any:
    """Return the result of a run that ends after the 4th episode: in the middle of the fragment."""
    agents = mt.make_agents("ppo", env, seed=0)
    trainer = mt.DecentralizedTrainer(
        env, seed=3, num_train_envs=3, update_freq=200, episodes_per_train=4, test_freq=None, progress=False,
        **{"run_dir": False, **settings},
    )  # fmt: skip
    return trainer.train(agents, [1, 1], plot=False)


if LONG:

    @pytest.mark.usefixtures("ray_cluster")
    def test_environments_that_are_not_reproducible_have_fragments_of_one_batch_step():
        expected, found = ended_in_a_fragment(Marked), ended_in_a_fragment(Marked, runners=2)
        columns = [name for name in expected["episodes"].columns if name != "seconds"]
        assert found["episodes"][columns].equals(expected["episodes"][columns])


def test_repeated_steps_that_differ_are_an_error_of_a_checkpoint(local_runners, tmp_path):  # noqa: F811
    """At the end of a run without checkpoints, only the agents' generators need the repetition."""
    text = r"(?i)runner 0 repeated the first \d+ batch steps .* environments 0 to 0 \(drifting\).*not reproducible"
    with pytest.raises(WorkerError, match=text):
        ended_in_a_fragment(Drifting, runners=2, run_dir=tmp_path, callbacks=[mt.Checkpoint(every_steps=10**6)])
    with pytest.warns(UserWarning, match=f"{text}.*Training is complete"):
        assert ended_in_a_fragment(Drifting, runners=2)["num_collected_episodes"] >= 4


if LONG:

    @pytest.mark.usefixtures("ray_cluster")
    def test_an_act_that_lacks_what_the_learner_needs_is_an_error_of_the_agents(monkeypatch):
        result = ActingTask.of
        monkeypatch.setattr(ActingTask, "of", lambda seated: dataclasses.replace(result(seated), needed=("hint",)))
        text = (
            r"the agent of player_0 and player_1 needs hint from its act, in addition to the action; the act returned "
        )
        with pytest.raises(AgentError, match=f"{text}log_prob"):
            ended_in_a_fragment(Identity, runners=2)


def test_agents_that_runners_cannot_hold_are_refused():
    seats = SimpleNamespace(learner=mt.RandomAgent().learner(), who="player_0")
    with pytest.raises(ConfigError, match=r"runners act with agents of .*; the agent of player_0 is of another kind"):
        ActingTask.of(seats)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runners": 6}, r"runners must be at most num_train_envs \(5\), got 6"),
        ({"runners": 0}, "runners must be at least 1, got 0"),
        ({"runners": 2, "vector": "subproc"}, "hold the environments themselves: leave vector='subproc' out"),
        ({"runners": 2, "num_workers": 2}, "leave num_workers=2 out"),
        ({"runners": 2, "collect": "overlap"}, "leave collect='overlap' out"),
        ({"resources": {"num_cpus": 1}}, r'there are none with vector=.dummy.: use runners= or vector="ray"'),
        ({"runners": 2, "resources": {"num_cpus": "1"}}, r"resources\['num_cpus'\] must be a number from 0"),
        ({"runners": 2, "timeout": 0}, "timeout must be greater than 0"),
    ],
)
def test_wrong_settings_are_refused_without_a_cluster(settings, message):
    with pytest.raises(ConfigError, match=message):
        trainer_of("ppo", **settings)
