"""The actor of a named run, without Ray: requests and answers, the end, and requests that come too late."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from marltrain.core.errors import ConfigError, EnvError, WorkerError
from marltrain.trainer.jobs.job_actor import JobActor
from marltrain.trainer.jobs.messages import Answer, Report, Request, RunProgress, Taken
from marltrain.trainer.reporting.run_view import RunView

NOW = RunProgress("x", "game", ("a", "b"), "process 1 on here", None, {"env_steps": 1000, "updates": None})


def actor() -> JobActor:
    return JobActor(NOW, RunView("game - x", NOW.budgets))


def test_requests_are_taken_once_and_answered_by_number():
    async def play():
        served = actor()
        asked = [asyncio.create_task(served.ask("table", name, 5.0)) for name in ("history", "episodes")]
        await asyncio.sleep(0)
        taken = await served.report(Report(replace(NOW, env_steps=250)))
        assert taken == Taken([Request(1, "table", "history"), Request(2, "table", "episodes")], [])
        assert await served.report(Report(NOW, answers={2: Answer("second"), 7: Answer("nobody's")})) == Taken([], [])
        assert await served.report(Report(NOW, answers={1: Answer.of(ConfigError("no"))})) == Taken([], [])
        return [await each for each in asked]

    first, second = asyncio.run(play())
    assert second.result() == "second"
    with pytest.raises(ConfigError, match="no"):
        first.result()


def test_a_request_in_vain_is_withdrawn_or_known_to_be_taken():
    async def play():
        served = actor()
        withdrawn = await served.ask("stop", "", 0.01)
        assert await served.report(Report(NOW)) == Taken([], [])
        late = asyncio.create_task(served.ask("stop", "", 0.05))
        await asyncio.sleep(0)
        assert len((await served.report(Report(NOW))).requests) == 1
        return withdrawn, await late

    withdrawn, late = asyncio.run(play())
    with pytest.raises(WorkerError, match=r"the run 'x' has not answered within 0.01 s \(timeout\): .* withdrawn"):
        withdrawn.result()
    with pytest.raises(WorkerError, match="it has taken the request, and still works on it"):
        late.result()


def test_those_who_wait_hear_of_the_end():
    async def play():
        served = actor()
        assert (await served.wait(0.01)).stop_reason == ""
        waiting, asked = asyncio.create_task(served.wait(5.0)), asyncio.create_task(served.ask("stop", "", 5.0))
        await asyncio.sleep(0)
        await served.end(Report(replace(NOW, stop_reason="stop_fn")))
        return await waiting, await asked, await served.ask("stop", "", 5.0)

    last, *late = asyncio.run(play())
    assert last.stop_reason == "stop_fn"
    for answer in late:
        with pytest.raises(WorkerError, match="the run 'x' has ended: stop_fn"):
            answer.result()


def test_the_view_gets_points_and_counts():
    async def play():
        served = actor()
        await served.report(Report(replace(NOW, env_steps=250, note="busy"), [({"test/metric": 3.0}, 200)]))
        return await served.view(), await served.progress()

    view, progress = asyncio.run(play())
    assert view.text().startswith(" 25%, 0 episodes, 250 env steps, metric 3 (best 3), busy") and progress.done == 0.25


def test_errors_of_other_libraries_are_worker_errors():
    with pytest.raises(EnvError, match="broken"):
        Answer.of(EnvError("broken")).result()
    with pytest.raises(WorkerError, match="KeyError: 'x'"):
        Answer.of(KeyError("x")).result()


class Held:
    """Stands for observed transitions."""

    def __init__(self, size, rows):
        self.size, self.rows = size, rows

    def __len__(self):
        return self.rows


def test_transitions_wait_for_room(monkeypatch):
    """Each call brings 40 of the 100 bytes that the actor holds; the third waits until the run has taken the others."""
    monkeypatch.setattr("marltrain.trainer.jobs.job_actor.MOST_HELD", 100)
    rows: Any = Held(40, 1)

    async def play():
        served = actor()
        for _ in range(2):
            (await served.observe("a", rows, 0.01)).result()
        late = await served.observe("a", rows, 0.01)
        third = asyncio.create_task(served.observe("b", rows, 5.0))
        await asyncio.sleep(0)
        taken = await served.report(Report(NOW))
        (await third).result()
        return late, taken, await served.report(Report(NOW))

    late, taken, rest = asyncio.run(play())
    assert taken.experience == [("a", rows)] * 2 and rest.experience == [("b", rows)]
    with pytest.raises(WorkerError, match="has not answered within"):
        late.result()


def test_transitions_stay_with_the_actor_while_the_run_takes_none(monkeypatch):
    """As during a test. It holds at most 10 of them, but also a larger batch if there are no others."""
    monkeypatch.setattr("marltrain.trainer.jobs.job_actor.MOST_ROWS", 10)
    first, second, large = (cast(Any, Held(1, rows)) for rows in (7, 4, 20))

    async def play():
        served = actor()
        (await served.observe("a", first, 0.01)).result()
        late = await served.observe("a", second, 0.01)
        kept = await served.report(Report(NOW, room=False))
        taken = await served.report(Report(NOW))
        (await served.observe("a", large, 0.01)).result()
        waiting = asyncio.create_task(served.observe("a", first, 5.0))
        await asyncio.sleep(0)
        await served.end(Report(replace(NOW, stop_reason="stop_fn"), room=False))
        return late, kept, taken, await waiting

    late, kept, taken, over = asyncio.run(play())
    assert kept == Taken([], []) and taken == Taken([], [("a", first)])
    for answer, text in ((late, "has not answered within"), (over, "has ended: stop_fn")):
        with pytest.raises(WorkerError, match=text):
            answer.result()
