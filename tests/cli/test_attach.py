"""`marltrain attach` and `marltrain status` on a run that trains in a thread."""

import pytest

from marltrain.cli.commands import main
from marltrain.processes.ray_actors import ActorError
from marltrain.tools import attach as attaching
from marltrain.trainer.jobs.messages import RunProgress
from tests.trainer.jobs.background import Background
from tests.trainer.running import ppo

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_named_run_is_listed_followed_tested_and_ended(capsys):
    with Background(ppo(), name="spread") as run:
        assert main(["status"]) == 0
        assert main(["attach", "spread", "--once"]) == 0
        assert main(["attach", "spread", "--test", "2"]) == 0
        listed, *drawn, tested = capsys.readouterr().out.splitlines()
        assert listed.startswith("spread  Identity, ") and " env steps, " in listed and ", process " in listed
        assert len(drawn) == 30 and "Identity - spread" in drawn[0]
        assert tested.startswith("TestResult(mean=") and "episodes=2" in tested
        assert main(["attach", "sprad"]) == 2
        assert "no run is called 'sprad' in the Ray cluster at" in (err := capsys.readouterr().err)
        assert "Did you mean 'spread'?" in err
        assert main(["attach", "spread", "--once", "--stop"]) == 2
        assert main(["attach", "spread", "--stop"]) == 0
        assert "ended by stopped at " in capsys.readouterr().out
    assert run.result["stop_reason"] == "stopped"
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "no named run goes on in the Ray cluster\n"


def test_a_run_that_does_not_answer_is_named(monkeypatch, capsys):
    silent = ActorError("no answer within 10 s", hung=True)

    def progress_of(cluster, name, timeout):
        raise silent

    monkeypatch.setattr(attaching, "_names", lambda cluster: ["busy"])
    monkeypatch.setattr(attaching, "_progress_of", progress_of)
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "busy: no answer within 10 s\n"


def test_the_runners_that_collect_are_listed(monkeypatch, capsys):
    progress = RunProgress("spread", "Spread", (), "process 1 on here", None, {}, runners=2, all_runners=4)
    monkeypatch.setattr(attaching, "_names", lambda cluster: ["spread"])
    monkeypatch.setattr(attaching, "_progress_of", lambda cluster, name, timeout: progress)
    assert main(["status"]) == 0
    assert " updates, 2 of 4 runners, " in capsys.readouterr().out
