"""Learner actors: results equal those of one process, whatever happens to the actors."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, EnvError, WorkerError
from marltrain.envs.faults import FaultPolicy
from marltrain.processes.ray_actors import ActorError
from marltrain.trainer.cluster.learner_actor import LearnerActor
from marltrain.trainer.cluster.learner_messages import LearningTask, UpdateAnswer, joined_metrics
from marltrain.trainer.cluster.learners import LearnerActors, Share
from marltrain.trainer.cluster.shard_agents import split
from tests.tiers import LONG
from tests.trainer.cluster.local_actors import local_actors  # noqa: F401
from tests.trainer.cluster.training import COMMON, assert_equal

SPREAD = "marltrain/simple_spread_v3"
PRIORITIZED: dict[str, Any] = {
    "learning_starts": 60, "batch_size": 16, "memory": mt.Replay(prioritized=mt.Prioritized()),
}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dqn": (PRIORITIZED, {"update_freq": 40, "steps_per_train": 280}),
    "ppo": ({"normalize_observations": True}, {"update_freq": 100, "steps_per_train": 200}),
    "vdn": (
        {"learning_starts": 60, "batch_size": 16}, {"update_freq": 40, "steps_per_train": 200, "team_reward": "mean"}
    ),
    "seac": ({}, {"update_freq": 100, "steps_per_train": 200}),
    "gru": ({"network": mt.GRU((8,))}, {"update_freq": 100, "steps_per_train": 200}),
}  # fmt: skip
"""Algorithm -> (settings of the agents, settings of the trainer), for three agents in a native game."""


def agents_of(case: str, **settings: Any) -> list[Any]:
    return mt.make_agents("ppo" if case == "gru" else case, SPREAD, seed=0, **CASES[case][0], **settings)


def trained(
    case: str, agents: Any = None, mask: Any = (1, 1, 1), resume: Any = None, **settings: Any
) -> tuple[Any, list[Any]]:
    """Return the result of a run, and the states of its agents."""
    agents = agents_of(case) if agents is None else agents
    given = {"run_dir": False, **COMMON, "test_freq": None, **CASES[case][1], **settings}
    result = mt.DecentralizedTrainer(SPREAD, **given).train(agents, list(mask), plot=False, resume=resume)
    return result, [agent.state() for agent in agents]


class Meddler(mt.Callback):
    """Changes a learning rate, a mask and a batch size, reads one agent's state and loads another's, between updates.

    seen: the state that it read.  signal: (ray, signal that it then sends to an actor), or None.
    """

    def __init__(self, agents: Any, tmp_path: Any, signal: Any) -> None:
        self.agents, self.folder, self.signal, self.rounds, self.seen = agents, tmp_path, signal, 0, None

    def on_update_end(self, moment):
        self.rounds += 1
        first, second, _ = self.agents
        if self.rounds == 1:
            first.hyper.learning_rate = 0.01
            first.memory.alpha = 0.3
        if self.rounds == 2:
            self.seen = second.state()
            moment.trainer.learning_mask = [1, 0, 1]
        if self.rounds == 3:
            mt.save(self.folder / "first", first)
            second.load_weights(self.folder / "first")
            for agent in self.agents:
                agent.hyper.batch_size = 8
        if self.rounds == 4:
            moment.trainer.learning_mask = [1, 1, 1]
        if self.rounds == 5 and self.signal is not None:
            ray, sign = self.signal
            send(sign, ray, moment.trainer.run.context.learner_actors, 0)


def send(sign: int, ray: Any, actors: Any, a: int) -> None:
    """Send a signal to the process of a learner actor."""
    handle = actors._actors[a]._handle
    os.kill(ray.get(handle.__ray_call__.remote(lambda self: os.getpid()), timeout=60), sign)


def meddled(tmp_path: Any, signal: Any = None, **settings: Any) -> Any:
    agents = agents_of("dqn")
    meddler = Meddler(agents, tmp_path / str(len(settings)), signal)
    result = trained("dqn", agents, callbacks=[meddler], steps_per_train=400, **settings)
    return *result, meddler.seen


def assert_same(expected: Any, found: Any) -> None:
    """The runs of `meddled` are equal; sums of fewer agents differ in their last bits."""
    assert_equal(expected[:2], found[:2], tolerance=1e-6)
    assert_equal((expected[0], [expected[2]]), (expected[0], [found[2]]), tolerance=1e-6)


def test_learners_equal_one_process_with_changes_in_hooks_and_lost_actors(tmp_path, local_actors):  # noqa: F811
    """Three agents in two actors; what hooks change reaches the actors; they die at a load, updates and a fetch."""
    expected, calm = meddled(tmp_path), meddled(tmp_path, learners=2)
    assert local_actors.made == ["learner actor 0", "learner actor 1"]
    assert_same(expected, calm)
    assert calm[0]["num_faults"] == 0 and calm[0]["bytes_to_learners"] > 10_000 < calm[0]["bytes_from_learners"]
    calls = list(local_actors.called)
    kinds = ("load", "update", "weights", "state")
    local_actors.dies.update(len(calls) + [call.split()[0] for call in calls].index(kind) + 3 for kind in kinds)
    found = meddled(tmp_path, learners=2, timeout=60.0)
    assert found[0]["num_faults"] >= len(kinds)
    assert "the updates since are made again" in found[0]["faults"]["message"].iloc[0]
    assert_same(expected, found)


@pytest.mark.parametrize(
    ("case", "number"), [("ppo", 2), *([(c, n) for c in CASES for n in (1, 2, 3)] if LONG else [])]
)
def test_learners_in_this_process_equal_none(case, number, local_actors):  # noqa: F811
    number = 1 if case == "vdn" else number
    assert_equal(trained(case), trained(case, learners=number), tolerance=1e-6)
    assert len(local_actors.made) == number


def test_a_team_whose_masks_change_learns_in_an_actor_as_in_one_process(local_actors):  # noqa: F811
    """One agent in all seats, and an agent for each: rows that are not learned from, and targets that follow."""

    def run(share: bool, **settings: Any) -> Any:
        agents = mt.make_agents("vdn", SPREAD, seed=0, share=share, tau=0.1, **CASES["vdn"][0])
        masks = iter([[1, 0, 1], [1, 1, 0], [0, 1, 1]])
        toggle = mt.LambdaCallback(
            on_update_end=lambda moment: setattr(moment.trainer, "learning_mask", next(masks, [1, 1, 1]))
        )
        return trained("vdn", agents, callbacks=[toggle], **settings)

    for share in (False, True):
        assert_equal(run(share), run(share, learners=1), tolerance=1e-6)
    assert len(local_actors.made) == 2


if LONG:

    @pytest.mark.parametrize("settings", [{"jit_compile": True}, {"backend": "tensorflow"}])
    def test_learners_with_compiled_updates_and_tensorflow_equal_one_process(settings, local_actors):
        result = [agents_of("dqn", **settings) for _ in range(2)]
        assert_equal(trained("dqn", result[0]), trained("dqn", result[1], learners=2), tolerance=1e-6)

    @pytest.mark.usefixtures("ray_cluster")
    @pytest.mark.parametrize(("case", "runners"), [("ppo", None), ("dqn", 2), ("vdn", 1)])
    def test_learners_in_ray_and_runners_equal_one_process(case, runners):
        found = trained(case, learners=1 if case == "vdn" else 2, runners=runners)
        assert_equal(trained(case), found, tolerance=1e-6)

    @pytest.mark.usefixtures("ray_cluster")
    def test_runners_work_ahead_while_actors_learn():
        """What corrects a rollout for its lag is sent with it."""
        seen: list[Any] = []
        watch = mt.LambdaCallback(on_update_end=lambda moment: seen.append(moment.data["metrics"]["agent_2"]))
        result, _ = trained("ppo", learners=2, runners=2, sync=False, steps_per_train=400, callbacks=[watch])
        assert result["max_lag"] == 1 and result["num_updates"] == 4
        assert "ratio_variance" not in seen[0] and seen[-1]["ratio_variance"] > 0


def test_learners_of_several_kinds_are_updated_at_the_same_time(local_actors):  # noqa: F811
    """A DQN with 3 updates a round, and two PPO agents, one of which does not learn: in two actors."""

    def agents() -> list[Any]:
        dqn = ("dqn", {**PRIORITIZED, "update_per_step": 0.03})
        return mt.make_agents({"agent_0": dqn, "agent_*": "ppo"}, SPREAD, seed=0)

    expected = trained("ppo", agents(), (1, 0, 1))
    found = trained("ppo", agents(), (1, 0, 1), learners=2)
    assert_equal(expected, found, tolerance=1e-6)
    calls = [call for call in local_actors.called if not call.startswith(("hold", "load"))]
    assert calls[:7] == ["update 0", "update 2", "update 0", "weights 2", "update 0", "weights 0", "update 0"]


if LONG:

    @pytest.mark.parametrize(("number", "sign"), [(1, signal.SIGKILL), (2, signal.SIGKILL), (2, signal.SIGSTOP)])
    def test_a_lost_learner_actor_is_replaced(tmp_path, ray_cluster, number, sign):
        """Ray actors; hooks change agents, and one actor is killed or frozen: equal to one process."""
        timeout = 60.0 if sign == signal.SIGKILL else 15.0
        expected, found = meddled(tmp_path), meddled(tmp_path, (ray_cluster, sign), learners=number, timeout=timeout)
        assert_same(expected, found)
        faults, kind = found[0]["faults"], "died" if sign == signal.SIGKILL else "timeout"
        assert faults["kind"].tolist() == [kind] and "learner actor 0, on node" in faults["message"].iloc[0]
        assert kind == "died" or "did not answer within" in faults["message"].iloc[0]


@pytest.mark.usefixtures("ray_cluster")
def test_resources_that_no_node_has_are_refused():
    text = (
        r"each learner actor needs \{'GPU': 1\}, which no node of the Ray cluster has; .* Change learner_resources, or"
    )
    with pytest.raises(ConfigError, match=text):
        trained("dqn", learners=2, learner_resources={"num_gpus": 1})


def resumed(tmp_path: Any, first: Any, second: Any) -> Any:
    """Return the result of a run that ends at a checkpoint after 5 rounds, and is resumed."""
    given: dict[str, Any] = {"run_dir": tmp_path / "run", "callbacks": [mt.Checkpoint(every_steps=10_000)]}
    trained("dqn", steps_per_train=200, learners=first, **given)
    return trained("dqn", steps_per_train=400, learners=second, resume=tmp_path / "run", **given)


if LONG:

    @pytest.mark.parametrize(("first", "second"), [(2, 3), (3, None), (None, 2)])
    def test_a_run_is_resumed_with_another_number_of_learners(tmp_path, local_actors, first, second):
        expected, found = trained("dqn", steps_per_train=400), resumed(tmp_path, first, second)
        assert_equal(expected, found, tolerance=1e-6)
        assert len(local_actors.made) == (first or 0) + (second or 0)


def test_an_error_in_an_update_names_the_actor_and_leaves_the_agents_as_they_were(local_actors, monkeypatch):  # noqa: F811
    result, updates = LearnerActor._update, []

    def update(self: Any, share: int, order: Any) -> Any:
        updates.append(share)
        if len(updates) == 4:  # of the second agent, in the second round
            raise ValueError("no memory")
        return result(self, share, order)

    agents = agents_of("ppo")
    monkeypatch.setattr(LearnerActor, "_update", update)
    with pytest.raises(AgentError, match=r"(?s)no memory.*The traceback of learner actor 1:\nTraceback"):
        trained("ppo", agents, learners=2)
    assert [int(agent.learner_.updates[agent.row]) for agent in agents] == [2, 2, 1]
    assert np.isfinite(agents[2].act(np.zeros(18, np.float32)))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"on_fault": "raise"}, WorkerError, r"learner actor 0, on node here ended: killed\. If it ran out of memory"),
        ({"max_env_restarts": 1}, EnvError, "2 faults within 10,000 env steps; max_env_restarts=1 are survived"),
        (
            {},
            WorkerError,
            r"actor 0, which holds agent_0, agent_1, was lost 3 times in a row .* killed\. If it ran out",
        ),
    ],
)
def test_lost_actors_are_errors_where_they_are_not_survived(local_actors, settings, error, message):  # noqa: F811
    """The agents are then in the last state that the driver has: that of the start."""
    local_actors.dies.update(range(70, 2000))
    agents, fresh = agents_of("dqn"), agents_of("dqn")
    with pytest.raises(error, match=message):
        trained("dqn", agents, learners=2, **settings)
    assert "weights 0" in local_actors.called[:70] and "state 0" not in local_actors.called
    for agent, other in zip(agents, fresh, strict=True):
        assert int(agent.learner_.updates[agent.row]) == 0
        for name, array in other.state().arrays.items():
            np.testing.assert_array_equal(agent.state().arrays[name], array)


@pytest.mark.parametrize(
    ("running", "late", "on_fault", "resources", "message"),
    [
        (False, False, None, None, r"it hung\. Call ray\.shutdown\(\) after the run only"),
        (True, False, "raise", None, r"it hung\. If an update .*, raise timeout \(now 5 s\), or leave on_fault out"),
        (True, True, None, {"num_cpus": 4}, r"not start within 65 s: it needs learner_resources=\{'num_cpus': 4\}, "),
        (True, True, None, None, "not start within 65 s: it needs one free CPU, which"),
    ],
)
def test_a_lost_actor_that_cannot_be_replaced(local_actors, running, late, on_fault, resources, message):  # noqa: F811
    local_actors.cluster.ray.is_initialized = lambda: running
    actors = LearnerActors(1, local_actors.cluster, resources, 5.0, FaultPolicy(on_fault))
    local_actors.late.update({1} if late else ())
    with pytest.raises(WorkerError, match=message):
        actors.replace(0, ActorError("it hung", hung=True))
    assert len(local_actors.made) == 1 + late and actors.lost
    with pytest.raises(WorkerError, match="not replaced, because another loss has ended the run"):
        actors.replace(0, ActorError("it ended", hung=False))


def test_an_actor_that_does_not_start_tells_what_it_needs(local_actors):  # noqa: F811
    local_actors.late.add(0)
    actors = LearnerActors(1, local_actors.cluster, {"num_cpus": 4}, 5.0, FaultPolicy(None))
    task: Any = None
    with pytest.raises(
        WorkerError, match=r"not be built there\. It needs learner_resources=\{'num_cpus': 4\}: start a"
    ):
        actors.hold([(0, task, slice(None), "agent_0")])


def test_a_round_of_many_updates_keeps_no_more_than_a_state_and_a_batch(local_actors, monkeypatch):  # noqa: F811
    """Ten updates a round, each with a batch of 0.9 times the size of the state; the actor dies within a round."""
    call, kept = Share.call, []

    def watched(self: Any, method: str, *arguments: Any) -> None:
        if method == "update":
            kept.append(self._log_size / self._state_size)
        call(self, method, *arguments)

    monkeypatch.setattr(Share, "call", watched)
    given: Any = {"learning_starts": 60, "batch_size": 16, "network": mt.MLP((8,)), "update_per_step": 0.25}
    result = [mt.make_agents("dqn", SPREAD, seed=0, **given) for _ in range(2)]
    settings: Any = {"update_freq": 40, "steps_per_train": 160}
    local_actors.dies.add(20)
    expected, found = trained("dqn", result[0], **settings), trained("dqn", result[1], learners=1, **settings)
    assert_equal(expected, found, tolerance=1e-6)
    assert found[0]["num_faults"] == 1 and max(kept) <= 1.0 < 1.5 * max(kept)
    assert "usu" in "".join(name[0] for name in local_actors.called)  # update, state, update


def test_a_second_interrupt_waits_for_no_actor(local_actors, monkeypatch):  # noqa: F811
    """It arrives in an update of the second round; the agents are those of the start, and are not asked for."""
    result, calls = LearnerActor._update, []

    def update(self: Any, share: int, order: Any) -> Any:
        if "weights 1" in local_actors.called and share == 1:
            calls.append(len(local_actors.called))
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return result(self, share, order)

    monkeypatch.setattr(LearnerActor, "_update", update)
    agents, fresh = agents_of("ppo"), agents_of("ppo")
    with pytest.raises(KeyboardInterrupt):
        trained("ppo", agents, learners=2)
    assert calls == [len(local_actors.called)]
    for agent, other in zip(agents, fresh, strict=True):
        for name, array in other.state().arrays.items():
            np.testing.assert_array_equal(agent.state().arrays[name], array)
        assert int(agent.learner_.updates[agent.row]) == 0


def test_agents_are_split_evenly_and_the_next_learner_begins_at_the_next_actor():
    assert split([3, 1, 2], 2) == [
        [(0, slice(0, 2)), (1, slice(2, 3))], [(0, slice(0, 1))], [(1, slice(0, 1)), (0, slice(1, 2))],
    ]  # fmt: skip
    assert split([1, 1, 1], 3) == [[(0, slice(0, 1))], [(1, slice(0, 1))], [(2, slice(0, 1))]]


def test_metrics_of_shares_are_joined():
    """Three shares: of two agents, of one without rows, and of one in which a phase was not due."""
    no: dict[str, Any] = {"errors": None, "updates": (), "gradient_steps": (), "hyper": (), "seconds": 1.0}
    both = UpdateAnswer({"a": np.array([1.0, 2.0]), "b": np.array([3.0, np.nan])}, {"b": np.array([0, 1]) > 0}, **no)
    one = UpdateAnswer({"a": np.array([4.0])}, {}, **no)
    learn = [np.array([True, True]), np.array([False]), np.array([True])]
    metrics, skipped = joined_metrics([both, None, one], [2, 1, 1], learn)
    np.testing.assert_equal(metrics["a"], [1.0, 2.0, np.nan, 4.0])
    np.testing.assert_equal(metrics["b"], [3.0, np.nan, np.nan, np.nan])
    assert list(skipped) == ["b"] and skipped["b"].tolist() == [False, True, False, True]


@pytest.mark.parametrize(("case", "number", "most"), [("dqn", 4, "3: lower"), ("vdn", 2, r"1 \(agents that learn")])
def test_more_actors_than_agents_are_refused(case, number, most, local_actors):  # noqa: F811
    with pytest.raises(ConfigError, match=rf"learners={number} actors, but there are agents for {most}"):
        trained(case, learners=number)
    assert not local_actors.made


def test_agents_that_learner_actors_cannot_hold_are_refused():
    def task(learner: Any, resources: Any = None) -> Any:
        return LearningTask.of(SimpleNamespace(learner=learner, who="player_0"), 1, resources, 2)  # type: ignore[arg-type]

    with pytest.raises(
        ConfigError, match=r"agents of marltrain's own algorithms .*; the agent of player_0 is of anoth"
    ):
        task(mt.RandomAgent().learner())
    (spread,) = mt.make_agents("dqn", "gymnasium/CartPole-v1", seed=0, strategy="DataParallel")
    with pytest.raises(ConfigError, match=r"player_0 has DataParallel\(processes=2\), which splits its minibatches"):
        task(spread.learner())
    agent: Any = mt.make_agents("dqn", "gymnasium/CartPole-v1", seed=0)[0]
    agent.backend.device = "cuda:0"
    with pytest.raises(ConfigError, match=r'player_0 computes on cuda:0, .*give learner_resources=\{"num_gpus": 1\}'):
        task(agent.learner())
    result = task(agent.learner(), {"num_gpus": 0.5, "num_cpus": 3})
    assert (result.device, result.threads) == ("auto", 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learners": 0}, "learners must be at least 1, got 0"),
        ({"learners": 2, "collect": "overlap"}, "collect='overlap' does not wait for it: leave one of them out"),
        ({"learner_resources": {"num_gpus": 1}}, "learner_resources are those of Ray actors, .*: use learners="),
        (
            {"learners": 2, "resources": {"num_cpus": 1}},
            r'there are none with vector=.dummy.: use runners= or vector="',
        ),
        ({"learners": 2, "learner_resources": {"GPU": 1}}, r"learner_resources\['GPU'\] is written 'num_gpus' here"),
    ],
)
def test_wrong_settings_are_refused_without_a_cluster(settings, message):
    with pytest.raises(ConfigError, match=message):
        mt.DecentralizedTrainer(SPREAD, **settings)
