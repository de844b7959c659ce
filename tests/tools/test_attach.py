"""Handles on named runs: progress, tables, the orderly end, and clear errors."""

import time

import pytest

import marltrain as mt
from marltrain.errors import ConfigError, WorkerError
from tests.trainer.jobs.background import Background
from tests.trainer.running import ppo, trainer

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
    assert result["history"][: len(history)].equals(history) and len(history) > 0
    assert result["episodes"][: len(episodes)].equals(episodes) and len(episodes) > 0
    assert result["faults"].equals(faults)
    begun = time.monotonic()
    with pytest.raises(WorkerError, match="the run 'meeting' has ended, or its process is gone"):
        handle.progress()
    with pytest.raises(ConfigError, match=r"no run is called 'meeting' in the Ray cluster at .* There are: none"):
        mt.attach("meeting")
    assert mt.named_runs() == [] and time.monotonic() - begun < 5


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match=r'address="local" begins a new Ray cluster'):
        mt.attach("meeting", address="local")
    with pytest.raises(ConfigError, match="attach: timeout must be a number of seconds, greater than 0, got 0"):
        mt.attach("meeting", timeout=0)
    with pytest.raises(ConfigError, match="connected to the Ray cluster at"):
        mt.named_runs(address="127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"name must consist of letters, .*got 'two words'"):
        trainer(name="two words")
