"""Film: videos of the tested agents, during training."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from marltrain.core.errors import ConfigError, shown
from marltrain.core.settings import checked_arguments
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.storage.checks import counted
from marltrain.trainer.events.callbacks import Callback, Moment
from marltrain.trainer.playing.displays import FILMS, check_writer
from marltrain.trainer.playing.play import play
from marltrain.trainer.reporting.figures import not_worth_a_run

FOLDER = "films"


class Film(Callback):
    """Films the agents that play the tests, at the first test and at every n-th one after it.

    env, env_args: the environment to film, as for `play`: one with the render mode "rgb_array" or "ansi". Of a native
    game its original is filmed (mpe2/simple_spread_v3 of marltrain/simple_spread_v3).
    every: tests between two films.  episodes, seed, fps, max_steps: as for `play`; every film has the same episodes.
    suffix: ".gif" or ".mp4" (`pip install "marltrain[mp4]"`).

    The films are "films/<env steps>.gif" in the run's folder. Copies of the agents play, without exploration, so
    training does not change.  Raises ConfigError for a wrong argument; the film of the first test raises the errors of
    `play`, and a later film that fails is a warning, since it would cost the run its result.
    """

    only_watches = True
    described_by = ("env", "env_args", "every", "episodes", "suffix", "fps", "max_steps", "seed")

    @checked_arguments
    def __init__(
        self,
        env: Any,
        *,
        env_args: Mapping[str, Any] | None = None,
        every: int = 10,
        episodes: int = 1,
        suffix: str = ".gif",
        fps: float | None = None,
        max_steps: int | None = 1000,
        seed: int = 0,
    ) -> None:
        """Check the arguments that `play` does not check."""
        if not (type(every) is int and every >= 1):
            raise ConfigError(f"Film: every must be an integer, at least 1, got {shown(every)}")
        if suffix not in FILMS:
            raise ConfigError(f"Film: suffix must be {' or '.join(FILMS)}, got {shown(suffix)}")
        check_writer(suffix)
        self.env, self.every, self.suffix = env, every, suffix
        self.env_args, self.episodes, self.fps, self.max_steps, self.seed = env_args, episodes, fps, max_steps, seed
        self._tests = 0
        self._line_up: list[Agent] = []

    def on_train_start(self, moment: Moment) -> None:
        """Note the agents that play the tests; the tests of a resumed run are counted on."""
        self._tests = 0
        self._line_up = list(moment.data["line_up"])

    def on_test_end(self, moment: Moment) -> None:
        """Make a film if it is due."""
        due, self._tests = self._tests % self.every == 0, self._tests + 1
        if not due:
            return
        folder = moment.run_dir / FOLDER
        folder.mkdir(exist_ok=True)
        copies = {id(agent): FrozenAgent(agent) for agent in self._line_up}
        out = folder / f"{moment.env_steps:09}{self.suffix}"
        with nullcontext() if self._tests == 1 else not_worth_a_run(out):
            play(
                self.env, [copies[id(agent)] for agent in self._line_up], env_args=self.env_args,
                episodes=self.episodes, out=out, fps=self.fps, max_steps=self.max_steps, seed=self.seed,
            )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Return the number of tests so far."""
        return {"tests": self._tests}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._tests = counted("the number of tests", state["tests"])
