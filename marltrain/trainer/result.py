"""The result of `train`."""

from __future__ import annotations

from typing import Any


class TrainResult(dict[str, Any]):
    """Mapping of the counts, metrics and tables of a run, which prints in one line; see `train`."""

    def __repr__(self) -> str:
        """Return the counts, the metric, `stop_reason` and the folder in one line, without the tables."""
        metrics = self["reward_metric_stats"]
        told = f"metric {metrics[0]:.4g} at first, {metrics[-1]:.4g} at last, " if metrics else ""
        return (
            f"TrainResult({told}{self['num_collected_episodes']:,} episodes, "
            f"{self['num_collected_steps']:,} env steps, {self['num_gradient_steps']:,} gradient steps "
            f"in {self['training_time']:.1f} s, "
            f"stop_reason={self['stop_reason']!r}, run_dir={self['run_dir']!r})"
        )
