"""ScalarLogger: base class of loggers of scalars, such as TensorBoard. Steps are env steps.

<agent>/<metric>                  means over the updates since the last point
train/return/<player>             mean over the training episodes since the last point
train/env_steps_per_second        over the last seconds up to the end of an update; see `Speed`
train/episodes                    finished training episodes
train/updates                     updates so far
cluster/bytes_to_runners, cluster/bytes_from_runners  bytes so far, with runners
cluster/bytes_to_learners, cluster/bytes_from_learners  bytes so far, with learner actors
cluster/lag                       of the newest env steps, with asynchronous runners
test/metric, test/return/<player>
test/sampled/metric, test/sampled/return/<player>  with sampled tests
user/<name>                       values given to `Moment.log`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, shown
from marltrain.core.settings import python_number
from marltrain.storage.checks import counted, of_type
from marltrain.storage.state import State
from marltrain.trainer.evaluating.evaluation import TestResult
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.reporting.history import Means
from marltrain.trainer.reporting.speed import Speed


class ScalarLogger(Callback):
    """Computes the scalars of a run and passes them to `write`. Subclasses override open, write, flush, sync and close.

    every: seconds between two points of training; each is the mean of the values in between. Tests are written at once.
    followers: functions that get the scalars and env steps of every point, after `write`.
    """

    only_watches = True

    def __init__(self, *, every: float = 1.0) -> None:
        """Start without a value; raises ConfigError for a wrong interval."""
        number = python_number(every)
        if not isinstance(number, int | float) or not number >= 0:
            raise ConfigError(
                f"{type(self).__name__}: every must be a number of seconds, at least 0, got {shown(every)}"
            )
        self.every = float(number)
        self.followers: list[Callable[[Mapping[str, float], int], None]] = []
        self._means = Means()
        self._last = (0, 0.0)
        self._speed, self._updates = Speed(), 0  # updates before this call of `train`

    def open(self, moment: Moment) -> None:
        """Start to log; `moment.env_steps` is not 0 if the run continues an earlier one."""

    def write(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Log scalars by tag."""

    def write_picture(self, tag: str, picture: bytes, env_steps: int) -> None:
        """Log a picture, the bytes of a PNG file; nothing by default, for loggers of numbers alone."""

    def flush(self) -> None:
        """Write what is buffered."""

    def sync(self) -> None:
        """Write what is buffered before a checkpoint; loggers that write files bring them to the disk."""
        self.flush()

    def close(self) -> None:
        """End logging; it is called even if `open` was not."""

    def on_train_start(self, moment: Moment) -> None:
        """Call `open`."""
        self.open(moment)
        self._last = (moment.env_steps, moment.seconds)
        self._speed, self._updates = Speed(), moment.updates
        self._measure(moment)

    def on_episode_end(self, moment: Moment) -> None:
        """Add the returns to the means."""
        names, returns = moment.data["names"], moment.data["returns"].tolist()
        self._means.add({"train": {f"return/{name}": value for name, value in zip(names, returns, strict=True)}})

    def on_update_end(self, moment: Moment) -> None:
        """Add the metrics to the means; write a point if one is due."""
        self._means.add(moment.data["metrics"], moment.data["rounds"])
        self._measure(moment)
        if moment.seconds - self._last[1] >= self.every:
            self._write_point(moment)

    def on_test_end(self, moment: Moment) -> None:
        """Write a point of training, then the test."""
        self._write_point(moment)
        scalars = _of_test("test/", moment.data["metric"], moment.data["result"])
        if moment.data.get("sampled") is not None:
            scalars |= _of_test("test/sampled/", moment.data["sampled_metric"], moment.data["sampled"])
        self._send(scalars, moment.env_steps)
        self.flush()

    def on_log(self, moment: Moment) -> None:
        """Write a value that the user logged."""
        self._send({moment.data["tag"]: moment.data["value"]}, moment.env_steps)

    def on_picture(self, moment: Moment) -> None:
        """Write a picture that the user logged."""
        self.write_picture(moment.data["tag"], moment.data["picture"], moment.env_steps)

    def on_train_end(self, moment: Moment) -> None:
        """Write the last point and call `close`."""
        try:
            self._write_point(moment)
        finally:
            self.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the running means for the next point, and the env step and time of the last point."""
        means = self._means.state()
        return {
            "names": means.info["names"], "last": list(self._last),
            **{name: array.tolist() for name, array in means.arrays.items()},
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        steps, seconds = of_type("the last point", state["last"], list)
        self._last = counted("the last step", steps), of_type("its seconds", seconds, float)
        means, kinds = State(dict(state), {}, "the means"), {"sums": float, "counts": int}
        means.arrays = {name: np.array(means.values(name, kind), kind) for name, kind in kinds.items()}
        self._means.restore(means)

    def _write_point(self, moment: Moment) -> None:
        """Write the means since the last point."""
        scalars = self._means.take()
        if moment.updates == self._updates:  # otherwise the rate ends with an update, since steps alone are faster
            self._measure(moment)
        if moment.env_steps > self._last[0] and moment.seconds > self._last[1]:
            rate = self._speed.rate
            scalars |= {} if rate is None else {"train/env_steps_per_second": rate}
            scalars |= {"train/episodes": float(moment.episodes), "train/updates": float(moment.updates)}
        self._last = (moment.env_steps, moment.seconds)
        if moment.traffic.fragments:
            scalars["cluster/bytes_to_runners"] = moment.traffic.sent
            scalars["cluster/bytes_from_runners"] = moment.traffic.received
            scalars["cluster/runners"] = moment.traffic.runners
        if moment.traffic.to_learners:
            scalars["cluster/bytes_to_learners"] = moment.traffic.to_learners
            scalars["cluster/bytes_from_learners"] = moment.traffic.from_learners
        if moment.traffic.lag is not None:
            scalars["cluster/lag"] = moment.traffic.lag
        if scalars:
            self._send(scalars, moment.env_steps)
            self.flush()

    def _measure(self, moment: Moment) -> None:
        self._speed.add(moment.seconds, moment.env_steps, moment.updates)

    def _send(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Write scalars, and pass them to the followers."""
        self.write(scalars, env_steps)
        for follower in self.followers:
            follower(scalars, env_steps)


def _of_test(prefix: str, metric: float, result: TestResult) -> dict[str, float]:
    """Return the scalars of a test."""
    means = zip(result.names, result.returns.mean(0), strict=True)
    return {f"{prefix}metric": float(metric), **{f"{prefix}return/{name}": float(mean) for name, mean in means}}
