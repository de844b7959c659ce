"""attach: a handle on a named run of another process or machine, by its actor in a Ray cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from marltrain.core.errors import ConfigError, WorkerError, did_you_mean, shown
from marltrain.core.layout import Array
from marltrain.core.settings import checked_arguments, validate
from marltrain.core.spec import PlayerSpec
from marltrain.processes.ray_actors import ActorError, Cluster, NamedActor, check_versions, connected
from marltrain.processes.ray_addresses import clusters_here
from marltrain.tools.run_link import RunLink
from marltrain.tools.watch import follow
from marltrain.trainer.jobs.messages import STARTING, Answer, RunProgress
from marltrain.trainer.reporting.run_view import RunView
from marltrain.trainer.settings import TestSettings
from marltrain.trainer.training.experience import rows_of

if TYPE_CHECKING:
    import pandas as pd

    from marltrain.trainer.evaluating.evaluation import TestResult

STOPPED = "stopped"
"""Default of the reason of a stop."""
TESTING = 600.0
"""Default seconds of a test."""
SLACK = 5.0
"""Seconds that a reply takes at most on its way."""
LONGEST_WAIT = 10.0
"""Seconds of one call that waits for the end of a run; a lost actor is noticed after them."""


@checked_arguments
def attach(name: str, *, address: str | None = None, timeout: float = 60.0) -> JobHandle:
    """Return a handle on the run that `DecentralizedTrainer(..., name=name)` trains in another process or machine.

    address: "host:port" of the Ray cluster. Default: the cluster that this process is connected to, else the variable
    RAY_ADDRESS, else all clusters that run on this machine are searched.
    timeout: seconds that the run may take to answer.

    Raises ConfigError without Ray or a cluster, if no run of this name goes on, and if its process has other versions.
    """
    _check_seconds("attach: timeout", timeout)
    looked: dict[str, list[str]] = {}
    for cluster in _clusters(address):
        names = _names(cluster)
        if name in names:
            return JobHandle(cluster, name, timeout)
        looked[cluster.address] = names
        cluster.close()
    known = sorted(other for names in looked.values() for other in names)
    raise ConfigError(
        f"no run is called {name!r} in the Ray cluster at {' or '.join(looked)}.{did_you_mean(name, known)} There are: "
        f"{', '.join(known) or 'none'}. If the run is in another cluster, give its address"
    )


@checked_arguments
def named_runs(*, address: str | None = None, timeout: float = 10.0) -> list[RunProgress]:
    """Return the progress of all named runs that answer, by name.

    address: see `attach`.  timeout: seconds that a run's actor may take to answer.
    """
    _check_seconds("named_runs: timeout", timeout)
    return listed_runs(address, timeout)[0]


def listed_runs(address: str | None, timeout: float) -> tuple[list[RunProgress], list[str]]:
    """Return the progress of all named runs that answer, by name, and the names of the others."""
    found: list[RunProgress] = []
    silent: list[str] = []
    for cluster in _clusters(address):
        try:
            for name in _names(cluster):
                try:
                    found.append(_progress_of(cluster, name, timeout))
                except ActorError as error:
                    silent += [name] if error.hung else []
                except LookupError:
                    continue  # it has just ended
        finally:
            cluster.close()
    return sorted(found, key=lambda progress: progress.name), sorted(silent)


class JobHandle:
    """A handle on a named run; `attach` makes it. Several threads may use it.

    name: of the run.  agents: names of the players whose agents it trains.
    Methods raise WorkerError if the run has ended or does not answer in time.

    A handle that finds the end of the run, or of the cluster, closes itself: Ray ends a process that stays connected to
    a cluster that is gone, after about a minute.
    """

    def __init__(self, cluster: Cluster, name: str, timeout: float) -> None:
        """Find the run's actor; see `attach`."""
        self.name, self.timeout, self._link = name, timeout, RunLink(cluster, name, timeout)
        try:
            check_versions(*self._link.ask("about"))
            self.agents = self.progress().players
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return the handle."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the handle."""
        self.close()

    def __repr__(self) -> str:
        """Return the name and the cluster, in one line."""
        return f"JobHandle({self.name!r})"

    def progress(self) -> RunProgress:
        """Return how far the run is; see `RunProgress`. The run reports about twice a second."""
        return self._link.ask("progress")

    def view(self) -> RunView:
        """Return the numbers that the dashboard shows."""
        return self._link.ask("view", patient=True)

    def history(self) -> pd.DataFrame:
        """Return the table of tests so far, as "history" of the result of `train`."""
        return self._ask_run("table", "history")

    def episodes(self) -> pd.DataFrame:
        """Return the table of training episodes so far, as "episodes" of the result of `train`."""
        return self._ask_run("table", "episodes")

    def faults(self) -> pd.DataFrame:
        """Return the table of faults so far, as "faults" of the result of `train`."""
        return self._ask_run("table", "faults")

    def agent(self, name: str) -> AgentHandle:
        """Return a handle on the agent of a player; raises ConfigError for an unknown player."""
        if name not in self.agents:
            raise ConfigError(
                f"the run {self.name!r} has no player {name!r}.{did_you_mean(name, self.agents)} It has: "
                f"{', '.join(self.agents)}"
            )
        return AgentHandle(self, name)

    def test(self, episodes: int | None = None, sampled: bool = False, *, timeout: float = TESTING) -> TestResult:
        """Play a test with the newest weights, in the process of the run, which trains on after it; return its result.

        The test is not recorded in the tables, and changes nothing in the run.
        episodes: number of episodes; `episodes_per_test` of the run by default.
        sampled: agents act as they explore in training; see `DecentralizedTrainer.test`.
        timeout: seconds until the result must be there.
        """
        asked = TestSettings(episodes=episodes, sampled=sampled)
        validate(asked, "test")
        _check_seconds("test: timeout", timeout)
        return self._ask_run("test", asked, timeout)

    def stop(self, reason: str = STOPPED) -> None:
        """End training after the current step and its updates, as `trainer.stop` does.

        reason: `stop_reason` of the result. Returns when the run has taken the request; `wait` waits for its end.
        """
        if not isinstance(reason, str) or not reason:
            raise ConfigError(f"stop: reason must be text, got {shown(reason)}")
        self._ask_run("stop", reason)

    def wait(self, timeout: float | None = None) -> RunProgress:
        """Wait until the run ends, or for `timeout` seconds; return its last report.

        Its `stop_reason` is "" if the run goes on. Raises WorkerError if its process ends without a report.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = LONGEST_WAIT if until is None else max(min(until - time.monotonic(), LONGEST_WAIT), 0.0)
            progress: RunProgress = self._link.ask("wait", left, extra=left, patient=True)
            if progress.stop_reason:
                self._link.close(f"the run {self.name!r} has ended: {progress.stop_reason}")
                return progress
            if until is not None and time.monotonic() >= until:
                return progress

    def follow(self, *, every: float | None = None, once: bool = False, file: TextIO | None = None) -> None:
        """Show the run until it ends, as `watch` does: a dashboard in a terminal or notebook, lines in other outputs.

        every: seconds between two looks; None: 2 in a terminal, 30 for lines.
        once: show the state now, and return.  file: output, stdout by default.
        """
        if every is not None:
            _check_seconds("follow: every", every)
        follow(_Followed(self), every, once=once, out=sys.stdout if file is None else file)

    def close(self) -> None:
        """End the connection to the cluster, if `attach` has begun it."""
        self._link.close(f"the handle on the run {self.name!r} is closed")

    def _ask_run(self, kind: str, argument: Any, timeout: float | None = None) -> Any:
        """Return the run's answer to a request; see `requests.REQUESTS`."""
        seconds = self.timeout if timeout is None else timeout
        answer: Answer = self._link.ask("ask", kind, argument, seconds, extra=seconds - self.timeout + SLACK)
        return answer.result()


class AgentHandle:
    """An agent of a named run, by the name of its player; `JobHandle.agent` makes it. Several threads may use it.

    Calls of several threads and processes that come at the same time are answered by one act.

    updates: updates of the run in the weights of the last act; -1 before the first.
    """

    def __init__(self, job: JobHandle, name: str) -> None:
        """Take the run and the player."""
        self.name, self.updates, self._job = name, -1, job
        self._served = ""  # name of the actor of the agents, once it has answered
        self._player: PlayerSpec | None = None  # once the run has told that the agent learns from observed transitions

    def __repr__(self) -> str:
        """Return the player and the run, in one line."""
        return f"AgentHandle({self.name!r}, run={self._job.name!r})"

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Return the action with the newest weights, for one observation or a batch; see `Agent.act`.

        The run sends its weights at most once a second. Raises AgentError for agents that runners could not hold,
        WorkerError if the run has ended or does not answer.
        """
        return self.act_with_carry(observation, None, legal, explore)[0]

    def act_with_carry(
        self, observation: Any, carry: Any, legal: Any = None, explore: bool | Array = False
    ) -> tuple[Any, Any]:
        """Return (action, next carry), to act over an episode with a recurrent network.

        carry: None at the first decision of an episode, then what the last call returned.
        """
        lost: Exception | None = None
        for _ in range(2):  # the second try starts another actor in place of a lost one
            try:
                answer = self._asked(self.name, observation, legal, carry, explore)
            except (ActorError, LookupError) as error:
                self._served, lost = "", error
                if isinstance(error, ActorError) and error.hung:
                    break
            else:
                action, following, self.updates = answer.result()
                return action, following
        raise WorkerError(f"the actor of the agents of the run {self._job.name!r}: {lost}") from lost

    def observe(
        self, observation: Any, action: Any, reward: Any, next_observation: Any, terminated: Any, *, legal: Any = None,
        next_legal: Any = None,
    ) -> None:  # fmt: skip
        """Give the agent's replay memory a transition, or B transitions with a leading axis, of a runner of your own.

        They are kept beside the run's own and drawn with the same probability, the newest `capacity` of them. They are
        transitions of one step, also for agents with n_step above 1, and do not count towards `learning_starts`. Eight
        transitions enter the memory at once, when the next eight come. Checkpoints do not hold them.

        observation, next_observation: in the environment's format; an "action_mask" is the default of `legal`.
        action: in the environment's format.  reward: float.
        terminated: bool; False also at an end by a time limit, after which the next observation has a value.
        legal, next_legal: [A] or [B, A] bool, for players with legal actions; next_legal is not read after termination.

        Returns when the run's actor holds them; the run takes them about twice a second. If it is slower than the
        runner, the call waits for up to `timeout` seconds.
        Raises ConfigError for agents that cannot learn so (on-policy, recurrent, of a team, with priorities or
        hindsight), SpecError for values that do not fit, WorkerError if the run has ended.
        """
        if self._player is None:
            self._player = self._job._ask_run("player", self.name)
        values = observation, action, reward, next_observation, terminated, legal, next_legal
        seconds = self._job.timeout
        rows = rows_of(self._player, *values)
        answer: Answer = self._job._link.ask("observe", self.name, rows, seconds, extra=SLACK)
        answer.result()

    def _asked(self, *arguments: Any) -> Answer:
        """Return the answer of the actor of the agents, which the run starts at the first call."""
        limit = self._job.timeout + (0.0 if self._served else STARTING)
        actor = self._job._link.actor(self._served or self._job._ask_run("serve", None))
        answer: Answer = actor.ask("act", *arguments, timeout=limit)
        self._served = actor.name
        return answer


class _Followed:
    """The run of a handle, for `follow`."""

    def __init__(self, handle: JobHandle) -> None:
        self.handle, self.view = handle, handle.view()
        self.reason = ""

    def going_on(self) -> bool:
        return not self.reason

    def read(self) -> None:
        if not self.reason:
            self.view = self.handle.view()
        self.view.note = f"ended: {self.reason}" if self.reason else self.view.note

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds; the last report of the run ends the wait, and is kept."""
        last = self.handle.wait(seconds)
        if last.stop_reason:
            self.reason = last.stop_reason
            self.view.count(last.episodes, last.env_steps, last.updates, last.seconds)


def _clusters(address: str | None) -> Iterator[Cluster]:
    """Yield connections to the clusters in which a run may be, see `attach`; close each before the next.

    Raises ConfigError if there is none. Of several, those that refuse are left out.
    """
    if address == "local":
        raise ConfigError(
            'address="local" begins a new Ray cluster, in which no run goes on: give "auto" or "host:port"'
        )
    given = address or ("auto" if connected() else os.environ.get("RAY_ADDRESS"))
    places = [given] if given else clusters_here() or ["auto"]
    refused: list[ConfigError] = []
    for place in places:
        try:
            cluster = Cluster(place)
        except ConfigError as error:  # such as one of another user
            refused.append(error)
        else:
            yield cluster
    if len(refused) == len(places):
        raise refused[0]


def _names(cluster: Cluster) -> list[str]:
    """Return the names of the runs; other actors of a run have names with a slash."""
    return [name for name in cluster.names() if "/" not in name]


def _progress_of(cluster: Cluster, name: str, timeout: float) -> RunProgress:
    """Return the progress of a run; raises LookupError and ActorError."""
    progress: RunProgress = NamedActor(cluster, name).ask("progress", timeout=timeout)
    return progress


def _check_seconds(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigError(f"{what} must be a number of seconds, greater than 0, got {shown(value)}")
