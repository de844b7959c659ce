"""Handles on named runs: progress, tables, the orderly end, and clear errors."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import ray

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError, WorkerError
from marltrain.policies.memory.observed import ObservedReader
from marltrain.processes.ray_actors import NAMESPACE
from marltrain.tools import attach as attaching
from marltrain.trainer.jobs.messages import RunProgress
from marltrain.trainer.reporting.run_view import RunView
from tests.tiers import LONG
from tests.trainer.jobs.background import Background
from tests.trainer.running import dqn, ppo, trainer

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_handle_shows_a_run_and_ends_it():
    with Background(ppo(), name="meeting", test_freq=50) as run:
        handle = mt.attach("meeting")
        assert handle.agents == ("player_0", "player_1")
        first = handle.progress()
        assert first.name == "meeting" and first.env == "Identity" and first.stop_reason == "" and (first.done or 0) < 1
        (listed,) = mt.named_runs()
        assert listed.name == "meeting" and listed.process == first.process
        with pytest.raises(ConfigError, match=r"name='meeting': a run of this name goes on .* \(process \d+ on "):
            trainer(name="meeting", run_dir=False).train(ppo(), [1, 1])
        while (now := handle.progress()).updates <= first.updates or now.metric is None:
            time.sleep(0.05)
        history, episodes, faults = handle.history(), handle.episodes(), handle.faults()
        assert handle.wait(0.01).stop_reason == ""
        handle.stop("enough")
        last = handle.wait(30)
        assert last.stop_reason == "enough" and last.age < 5
    result = run.result
    assert result["stop_reason"] == "enough"
    assert result["num_collected_steps"] == last.env_steps > now.env_steps > 0
    assert result["num_updates"] == last.updates and result["reward_metric_stats"][-1] == last.metric
    assert max(result["reward_metric_stats"]) == last.best
    known = result["history"][history.columns]  # of numbers that the run has measured by then
    assert known[: len(history)].equals(history) and len(history) > 0
    assert result["episodes"][: len(episodes)].equals(episodes) and len(episodes) > 0
    assert result["faults"].equals(faults)
    begun = time.monotonic()
    with pytest.raises(WorkerError, match="the run 'meeting' has ended: enough"):
        handle.progress()
    with pytest.raises(ConfigError, match=r"no run is called 'meeting' in the Ray cluster at .* There are: none"):
        mt.attach("meeting")
    assert mt.named_runs() == [] and time.monotonic() - begun < 5


def test_agents_act_with_the_newest_weights_for_several_callers():
    """Without updates the acts are those of the run's agents; with updates the weights follow."""
    symbols = np.arange(3)
    with Background(ppo(), name="asked", update_freq=10**5) as run:
        handle = mt.attach("asked")
        agent, expected = handle.agent("player_1"), run.agents[1].act(symbols)
        with ThreadPoolExecutor(4) as callers:
            found = list(callers.map(lambda _: agent.act(symbols), range(8)))
        assert all(acts.tolist() == expected.tolist() for acts in found) and agent.updates == 0
        assert agent.act(1) == expected[1]
        with pytest.raises(SpecError):
            agent.act("x")
        with pytest.raises(ConfigError, match=r"no player 'player_2'.* It has: player_0, player_1"):
            handle.agent("player_2")
        assert [progress.name for progress in mt.named_runs()] == ["asked"]
        if LONG:
            ray.kill(ray.get_actor("asked/agents", namespace=NAMESPACE))
            assert agent.act(1) == expected[1]  # another one is started
    with pytest.raises(WorkerError, match="the run 'asked' has ended"):
        agent.act(1)
    if LONG:
        weights_follow_updates()


def test_agents_learn_from_transitions_of_a_runner():
    """The run stores all transitions, and draws those of complete blocks."""
    with Background([*dqn()[:1], *ppo()[1:]], name="fed") as run:
        handle = mt.attach("fed")
        agent = handle.agent("player_0")
        for _ in range(5):
            agent.observe([0, 1, 2], [2, 1, 0], [0.0, 1.0, 0.0], [1, 2, 0], [False, False, True])
        agent.observe(1, 1, 1.0, 2, False)
        with pytest.raises(SpecError, match="action must be one element"):
            agent.observe(1, 3, 1.0, 2, False)
        with pytest.raises(ConfigError, match=r"the agent of 'player_1' cannot learn .*: it learns on-policy"):
            handle.agent("player_1").observe(1, 1, 1.0, 2, False)
        while handle.progress().observed < 16:
            time.sleep(0.05)
        assert handle.progress().observed == 16
    assert run.trainer.run is not None and run.trainer.run.context.job is not None
    (memory,) = run.trainer.run.context.job.experience.memories.values()
    assert memory.streams.rings[0].drawable_count.tolist() == [8, 0]
    readers = [scheduler._reader for scheduler in run.trainer.run.context.schedulers]
    assert [isinstance(reader, ObservedReader) for reader in readers] == [True, False]


def weights_follow_updates():
    """The weights are sent once a second."""
    with Background(ppo(), name="learning"):
        handle = mt.attach("learning")
        agent, seen = handle.agent("player_0"), list[int]()
        while len(set(seen)) < 3:
            agent.act(1)
            seen.append(agent.updates)
        assert seen == sorted(seen) and seen[-1] > 0
        while handle.progress().updates < seen[-1]:
            time.sleep(0.05)


def test_another_process_ends_a_run(ray_cluster):
    """By the command line, with the address that the run prints."""
    with Background(ppo(), name="watched") as run:
        address = ray_cluster.get_runtime_context().gcs_address
        words = [sys.executable, "-m", "marltrain", "attach", "watched", "--address", address, "--stop"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, run.result["stop_reason"]) == (0, "stopped"), done.stderr
    steps = run.result["num_collected_steps"]
    assert done.stdout.splitlines() == ["the run has taken the request", f"ended by stopped at {steps:,} env steps"]


def test_a_run_is_followed_until_it_ends(capsys):
    """The run ends in the second wait; its last report is shown."""
    now = RunProgress("x", "game", ("a",), "process 1 on here", None, {"env_steps": 100}, env_steps=50)
    ended = replace(now, env_steps=100, seconds=7.0, stop_reason="steps_per_train")
    waits, reports = list[float](), [now, ended]

    def wait(seconds):
        waits.append(seconds)
        return reports.pop(0)

    handle = SimpleNamespace(
        wait=wait, view=lambda: RunView("game - x", now.budgets, env_steps=50 + len(waits), note="testing")
    )
    mt.JobHandle.follow(handle, every=3.0)  # type: ignore[arg-type]
    assert waits == [3.0, 3.0]
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith(" 50%, 0 episodes, 50 env steps") and "51 env steps, testing" in second
    assert last.startswith("100%, 0 episodes, 100 env steps") and last.endswith("ended: steps_per_train, 0:07")


class OneOfThree:
    """A connection to one of three clusters; the first refuses, the last holds two runs."""

    runs: ClassVar[dict[str, list[str]]] = {"b:2": [], "c:3": ["y", "y/agents", "x"]}
    open: ClassVar[list[str]] = []

    def __init__(self, address):
        assert not self.open
        if address not in self.runs:
            raise ConfigError(f"{address} refuses")
        self.address = address
        self.open.append(address)

    def names(self):
        return self.runs[self.address]

    def close(self):
        self.open.clear()


def test_all_clusters_of_the_machine_are_searched(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(attaching, "Cluster", OneOfThree)
    monkeypatch.setattr(attaching, "connected", lambda: False)
    monkeypatch.setattr(attaching, "clusters_here", lambda: ["a:1", "b:2", "c:3"])
    monkeypatch.setattr(attaching, "_progress_of", lambda cluster, name, timeout: SimpleNamespace(name=name))
    assert [run.name for run in mt.named_runs()] == ["x", "y"] and not OneOfThree.open
    with pytest.raises(ConfigError, match=r"no run is called 'z' in the Ray cluster at b:2 or c:3. There are: x, y"):
        mt.attach("z")
    monkeypatch.setattr(attaching, "clusters_here", lambda: ["a:1"])
    with pytest.raises(ConfigError, match="a:1 refuses"):
        mt.named_runs()
    monkeypatch.setenv("RAY_ADDRESS", "d:4")
    with pytest.raises(ConfigError, match="d:4 refuses"):
        mt.attach("x")


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match=r'address="local" begins a new Ray cluster'):
        mt.attach("meeting", address="local")
    with pytest.raises(ConfigError, match=r"attach: timeout.*got 0"):
        mt.attach("meeting", timeout=0)
    with pytest.raises(ConfigError, match="connected to the Ray cluster at"):
        mt.named_runs(address="127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"name must consist of letters, .*got 'two words'"):
        trainer(name="two words")
