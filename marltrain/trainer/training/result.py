"""The result of `train`."""

from __future__ import annotations

from typing import Any, Self

from marltrain.trainer.training.run import Run


class TrainResult(dict[str, Any]):
    """Mapping of the counts, metrics and tables of a run, which prints in one line; see `train`."""

    @classmethod
    def of(cls, run: Run) -> Self:
        """Return the result of a finished run."""
        counters, folder = run.counters, run.context.folder
        return cls({
            "reward_metric_stats": list(run.selection.metrics),
            "num_collected_steps": counters.env_steps,
            "num_collected_episodes": counters.episodes,
            "num_gradient_steps": counters.gradient_steps,
            "num_updates": counters.updates,
            "training_time": run.clock.seconds,
            "stop_reason": run.reason,
            "run_dir": None if folder is None else str(folder.path),
            "history": run.history.tests,
            "episodes": run.history.episodes,
            "num_dropped_steps": counters.dropped_steps,
            "num_faults": len(run.faults),
            "faults": run.faults.frame,
            "bytes_to_runners": run.traffic.sent,
            "bytes_from_runners": run.traffic.received,
            "bytes_to_learners": run.traffic.to_learners,
            "bytes_from_learners": run.traffic.from_learners,
            "max_lag": run.traffic.max_lag,
            "fewest_runners": run.traffic.fewest_runners,
        })  # fmt: skip

    def __repr__(self) -> str:
        """Return the counts, the metric, `stop_reason` and the folder in one line, without the tables."""
        metrics = self["reward_metric_stats"]
        change = f"metric {metrics[0]:.4g} at first, {metrics[-1]:.4g} at last, " if metrics else ""
        return (
            f"TrainResult({change}{self['num_collected_episodes']:,} episodes, "
            f"{self['num_collected_steps']:,} env steps, {self['num_gradient_steps']:,} gradient steps "
            f"in {self['training_time']:.1f} s, "
            f"stop_reason={self['stop_reason']!r}, run_dir={self['run_dir']!r})"
        )
