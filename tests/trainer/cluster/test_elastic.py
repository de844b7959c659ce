"""Elastic runners: lost ones are done without, others join later, and results equal those of one process."""

import os
import signal
from typing import Any, ClassVar

import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, EnvError, WorkerError
from marltrain.trainer.cluster import elastic
from marltrain.trainer.cluster.runners import RunnerVectorEnv
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.cluster.local_runners import local_runners  # noqa: F401 - a fixture
from tests.trainer.cluster.training import agents_of, assert_equal, trained, trainer_of

ELASTIC: dict[str, Any] = {"runners": 3, "min_runners": 1}


class Disturber(mt.Callback):
    """Kills runners, and lets others start, at given batch steps; notes how many runners collect.

    kills: batch step -> numbers of the runners that are killed then.  held: batch steps from which on the cluster has
    no room any more, and has room again.
    """

    def __init__(self, local: Any, kills: dict[int, tuple[int, ...]], held: tuple[int, int]) -> None:
        self.local, self.kills, self.held = local, kills, held
        self.steps, self.collecting = 0, list[int]()

    def on_step(self, moment):
        self.steps += 1
        if self.steps in self.held:
            self.local.held = self.steps == self.held[0]
        for w in self.kills.get(self.steps, ()):
            moment.trainer.run.context.envs.pool._actors[w].kill()

    def on_update_end(self, moment):
        if self.collecting[-1:] != [moment.traffic.runners]:
            self.collecting.append(moment.traffic.runners)


def disturbed(local: Any, case: str, kills: Any, held: tuple[int, int], **settings: Any) -> tuple[Any, list[int]]:
    """Return a run (result, states of agents), and the numbers of runners that collected, one after another."""
    disturber, agents = Disturber(local, kills, held), agents_of(case)
    trainer = trainer_of(case, callbacks=[disturber], **{**ELASTIC, **settings})
    result = trainer.train(agents, [1] * len(agents), plot=False)
    return (result, [agent.state() for agent in agents]), disturber.collecting


@pytest.mark.parametrize("case", ["dqn", *LONG * ["ppo", "vdn", "gru"]])
def test_a_run_goes_on_with_fewer_runners_and_with_more_again(local_runners, caplog, case):  # noqa: F811
    """5 environments; two runners of three are lost one after another without room for others, which comes later."""
    kills, settings = {12: (2,), 27: (0,)}, {"update_freq": 50, "batch_size": 50} if case in ("ppo", "gru") else {}
    found, collecting = disturbed(local_runners, case, kills, (5, 45), **settings)
    assert_equal(trained(case, **settings), found, tolerance=0.0 if case in ("dqn", "ppo") else 1e-6)
    assert collecting == [3, 2, 1, 3] and found[0]["fewest_runners"] == 1
    data = found[0]["faults"]["message"]
    assert found[0]["num_faults"] == 2
    assert data[0].startswith("runner 2, which held environments 3 to 4 (") and data[0].endswith("with 2 of 3 runners")
    assert data[1].startswith("runner 0, which held environments 0 to 1 (") and data[1].endswith("with 1 of 3 runners")
    assert "another runner, on node here, has started: 2 of 3 runners collect" in caplog.text
    assert "another runner, on node here, has started: 3 of 3 runners collect" in caplog.text


@pytest.mark.parametrize("sync", [True, False])
def test_runners_are_lost_together_and_while_environments_are_divided(local_runners, sync):  # noqa: F811
    """Two of three at once; then the first that joins dies before it has built its environments."""
    settings: dict[str, Any] = {} if sync else {"sync": False, "max_lag": 2}
    local_runners.dies.add((3, "start"))
    found, collecting = disturbed(local_runners, "dqn", {12: (0, 1)}, (5, 30), **settings)
    expected = trained("dqn", runners=1, **settings)
    assert_equal(expected, found, tolerance=0.0)
    assert collecting[:2] == [3, 1] and collecting[-1] == 3 and found[0]["num_faults"] == 3


def test_a_checkpoint_in_the_middle_of_a_fragment_finds_a_lost_runner(local_runners, tmp_path):  # noqa: F811
    """Runners return to the last step; one is lost on the way, and the others repeat the fragment for it."""
    given: dict[str, Any] = {"run_dir": tmp_path / "run", "callbacks": [mt.Checkpoint(every_episodes=3)]}
    agents = agents_of("dqn")
    trainer: Any = trainer_of("dqn", **given, **ELASTIC)
    go_back = RunnerVectorEnv.rewind

    def losing(envs: Any, *arguments: Any) -> None:
        if len(envs.columns) == 3:
            local_runners.held = True
            envs.pool._actors[1].kill()
        go_back(envs, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunnerVectorEnv, "rewind", losing)
        result = trainer.train(agents, [1], plot=False)
    assert result["num_faults"] == 1 and result["fewest_runners"] == 2
    assert_equal(trained("dqn"), (result, [agent.state() for agent in agents]), tolerance=0.0)
    resumed = trainer_of("dqn", **given).train(agents_of("dqn"), [1], plot=False, resume=tmp_path / "run")
    assert resumed["num_collected_steps"] == result["num_collected_steps"]


def test_restarts_that_are_used_up_end_a_run_below_the_minimum_only(local_runners, caplog):  # noqa: F811
    """One restart is survived: for the second loss no runner is started; the third one leaves too few."""
    settings: dict[str, Any] = {"min_runners": 2, "max_env_restarts": 1}
    found, collecting = disturbed(local_runners, "dqn", {12: (0,), 40: (1,)}, (0, 0), **settings)
    assert collecting == [3, 2]
    assert_equal(trained("dqn"), found, tolerance=0.0)
    assert "max_env_restarts=1 within 10,000 env steps are used up: no other one is started" in caplog.text
    assert len(local_runners.made) == 4 and found[0]["num_faults"] == 2
    with pytest.raises(EnvError, match="2 faults within 10,000 env steps; max_env_restarts=1 are survived"):
        disturbed(local_runners, "dqn", {12: (0,), 40: (1,), 60: (0,)}, (0, 0), **settings)


def test_a_run_below_the_minimum_waits_for_a_runner_and_then_ends(local_runners, monkeypatch):  # noqa: F811
    monkeypatch.setattr(elastic, "STARTING", 0.0)
    monkeypatch.setattr("marltrain.envs.workers.pool.STARTING", 0.0)
    text = (
        r"runner 0, which held .* killed\. 1 of 3 runners are there \(min_runners=2\), and no other one started within "
        r"0\.2 s: it needs one free CPU, which no node seems to have now"
    )
    with pytest.raises(WorkerError, match=text):
        disturbed(local_runners, "dqn", {12: (0, 1)}, (5, 0), min_runners=2, timeout=0.2)


def test_a_run_begins_with_the_runners_that_there_is_room_for(local_runners, monkeypatch):  # noqa: F811
    """Two of three start; the third one later. With room for one, it does not begin."""
    monkeypatch.setattr(elastic, "STARTING", 0.1)
    monkeypatch.setattr("marltrain.envs.workers.pool.STARTING", 0.1)
    local_runners.room = 2

    class Growing(mt.Callback):
        def on_episode_end(self, moment):
            local_runners.room = 3 if moment.episodes > 5 else 2

    agents = agents_of("dqn")
    given: dict[str, Any] = {"runners": 3, "min_runners": 2, "timeout": 0.1}
    result = trainer_of("dqn", callbacks=[Growing()], **given).train(agents, [1], plot=False)
    assert_equal(trained("dqn"), (result, [agent.state() for agent in agents]), tolerance=0.0)
    assert result["fewest_runners"] == 2 and result["num_faults"] == 0
    assert [runner.name.partition(" (")[0] for runner in local_runners.made] == [
        f"runner {w}, which held environments {share}" for w, share in enumerate(("0 to 0", "1 to 2", "3 to 4"))
    ]
    local_runners.room = len(local_runners.made) + 1
    with pytest.raises(WorkerError, match=r"1 of 3 runners are there \(min_runners=2\), and no other one started"):
        trained("dqn", **given)


class Marked(Identity):
    """Marked as not reproducible."""

    metadata: ClassVar[dict[str, Any]] = {"name": "marked", "reproducible": False}


def test_environments_that_are_not_reproducible_are_refused(local_runners):  # noqa: F811
    trainer = mt.DecentralizedTrainer(Marked, run_dir=False, progress=False, num_train_envs=3, **ELASTIC)
    with pytest.raises(ConfigError, match="min_runners=1: Marked is not reproducible, so that its episodes cannot go"):
        trainer.train(mt.make_agents("ppo", Marked, seed=0), [1, 1], plot=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_runners": 1}, "min_runners=1 is of use with runners only: give runners="),
        ({"runners": 2, "min_runners": 3}, r"min_runners must be at most runners \(2\), got 3"),
        ({"runners": 2, "min_runners": 0}, "min_runners must be at least 1, got 0"),
        ({**ELASTIC, "on_fault": "raise"}, 'on_fault="raise" ends the run when a runner is lost, and min_runners=1'),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        trainer_of("ppo", **settings)


if LONG:

    def test_a_runner_waits_in_the_queue_of_the_cluster_until_there_is_room(ray_cluster, monkeypatch):
        """Two runners fit. Another actor waits for room and gets that of a killed runner, until it is killed itself."""
        monkeypatch.setattr(elastic, "LOOKING", 0.0)
        other = ray_cluster.remote(Holder)

        class Crowded(mt.Callback):
            ended, collecting, holder = 0, list[int](), None

            def on_episode_end(self, moment):
                self.ended += 1
                pool = moment.trainer.run.context.envs.pool
                if self.ended == 2:
                    self.holder = other.options(num_cpus=1.5).remote()
                    actor = pool._actors[1]._handle
                    pid = ray_cluster.get(actor.__ray_call__.remote(lambda self: os.getpid()), timeout=60)
                    os.kill(pid, signal.SIGKILL)
                    assert ray_cluster.get(self.holder.here.remote(), timeout=60)
                if self.ended == 8:
                    assert not pool.waiting[0].ready(0.0)
                    ray_cluster.kill(self.holder)
                    assert pool.waiting[0].ready(60.0)

            def on_update_end(self, moment):
                if self.collecting[-1:] != [moment.traffic.runners]:
                    self.collecting.append(moment.traffic.runners)

        agents, crowded = agents_of("dqn"), Crowded()
        trainer = trainer_of("dqn", callbacks=[crowded], runners=2, min_runners=1, resources={"num_cpus": 1.5})
        found = trainer.train(agents, [1], plot=False), [agent.state() for agent in agents]
        assert_equal(trained("dqn"), found, tolerance=0.0)
        assert crowded.collecting == [2, 1, 2] and found[0]["num_faults"] == 1


class Holder:
    """Occupies room in a cluster."""

    def here(self) -> bool:
        return True
