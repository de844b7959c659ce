"""Policy-space response oracles (PSRO): populations that grow by best responses (Lanctot et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.layout import Array
from marltrain.core.seeds import child_seed, chosen_seed
from marltrain.core.settings import checked_arguments
from marltrain.envs.python.probe import probe
from marltrain.envs.registry import resolve
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.fixed import FrozenAgent, RandomAgent
from marltrain.policies.agents.mixed import MixedAgent
from marltrain.rivals.exploitability import exploitability as exploitability_of
from marltrain.rivals.meta_strategies import META_STRATEGIES, MetaStrategy, Strategies
from marltrain.rivals.saved_psro import SavedPSRO, psro_in
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.make_agents import make_agents
from marltrain.trainer.preparing.resume import described_agent, described_argument, threads
from marltrain.trainer.reporting.functions import described_function
from marltrain.trainer.saving.checkpoint import Checkpoint, newest, sole

if TYPE_CHECKING:
    import pandas as pd

UNLESS_GIVEN = {"test_freq": None, "run_dir": False, "progress": False}
"""Arguments of the trainer of best responses, unless they are given."""
FREE = {"callbacks", "progress", "run_dir", "vector", "num_workers"}
"""Arguments of `trainer` that a resumed call may change."""


@dataclass
class PSROResult:
    """Populations of two players, and how to choose from them.

    populations: the policies of each player, the oldest first.
    payoffs: [2, N0, N1] float64, mean returns of both players for a policy of each.
    strategies: the probabilities of the policies, of each player.
    gains: [iterations, 2] float64, how much more each player's new policy gained than its strategy before, against the
      strategy that it was trained against. Their sum estimates the exploitability, from below, times 2.
    exploitability: of the strategies after each iteration, if it was asked for.
    """

    populations: tuple[list[Agent], list[Agent]]
    payoffs: Array
    strategies: Strategies
    gains: list[list[float]] = field(default_factory=list)
    exploitability: list[float] = field(default_factory=list)

    def agents(self) -> list[Agent]:
        """Return both players as sets of their policies with the probabilities of the strategies.

        In training, a policy is drawn for each episode; in tests, policies play in turn; see `MixedAgent`.
        """
        return [MixedAgent(own, share) for own, share in zip(self.populations, self.strategies, strict=True)]

    def numbers(self) -> dict[str, Any]:
        """Return all results but the policies, by the names of the attributes."""
        return {
            "payoffs": self.payoffs, "strategies": self.strategies, "gains": self.gains,
            "exploitability": self.exploitability,
        }  # fmt: skip

    def history(self) -> pd.DataFrame:
        """Return a table of the iterations: "gain_0", "gain_1", and "exploitability" if it was asked for."""
        import pandas as pd

        table = pd.DataFrame(self.gains, columns=["gain_0", "gain_1"])
        return table.assign(exploitability=self.exploitability) if self.exploitability else table


@checked_arguments
def psro(
    algorithm: Any,
    env: Any,
    env_args: Mapping[str, Any] | None = None,
    *,
    iterations: int = 10,
    meta_strategy: str | MetaStrategy = "nash",
    trainer: Mapping[str, Any] | None = None,
    episodes: int = 100,
    sampled: bool = True,
    exploitability: bool = False,
    seed: int | None = None,
    resume: str | Path | None = None,
    **hyper: Any,
) -> PSROResult:
    """Train populations of policies of both players of a game: in each iteration, a best response joins each.

    The first policy of each population is uniformly random. An iteration trains a new agent of each player against the
    other's population, from which a policy is drawn for each episode by the other's strategy; plays the pairs with the
    new policies; and computes new strategies from the payoffs of all pairs (Lanctot et al. 2017, arXiv:1711.00832).

    algorithm, hyper: of the best responses, as for `make_agents`.
    env, env_args: a game of two players, as for `DecentralizedTrainer`.
    meta_strategy: how strategies follow from payoffs: "nash" (an equilibrium, for zero-sum games), "uniform",
      "replicator" (projected replicator dynamics), or a function of payoffs [2, N0, N1] that returns probabilities [N0]
      and [N1].
    trainer: arguments of the `DecentralizedTrainer` that trains a best response, such as steps_per_train.
    episodes: episodes of a pair, from which its payoffs are estimated.
    sampled: policies draw their actions as in training; False: they act as in tests.
    exploitability: compute the exploitability of the strategies after each iteration, see `marltrain.exploitability`.
    seed: from which all seeds are derived; drawn if None, or that of the call that is resumed.
    resume: a folder in which populations and the training under way are saved. The same call goes on with it after an
      interrupt or the end of the process, with equal results. `iterations` may be larger; callbacks, progress, vector
      and num_workers of `trainer` may differ. Trainings are saved every minute, or at the times of a `Checkpoint` among
      the callbacks of `trainer`; with runners, results depend on the env steps of the checkpoints. None: nothing is
      saved.

    Raises ConfigError for a game of another number of players, an unknown meta-strategy, no iterations, and a folder of
    a call with other arguments, and SaveError for a damaged folder.
    """
    given = META_STRATEGIES.get(meta_strategy) if isinstance(meta_strategy, str) else meta_strategy
    if given is None:
        raise ConfigError(
            f"psro: no meta-strategy is called {meta_strategy!r}; there are {', '.join(META_STRATEGIES)}, or a function"
            f".{did_you_mean(str(meta_strategy), META_STRATEGIES)}"
        )
    players = probe(resolve(env, env_args)).players
    if len(players) != 2 or iterations < 1 or episodes < 1:
        raise ConfigError(
            "psro: expected a game of 2 players and iterations and episodes of at least 1, got "
            f"{len(players)} players, iterations={shown(iterations)} and episodes={shown(episodes)}"
        )
    if resume is not None and "run_dir" in (trainer or {}):
        raise ConfigError("psro: with resume=, trainings are saved in its folder: leave run_dir out of trainer=")
    asked = {**UNLESS_GIVEN, **(trainer or {})}
    with psro_in(resume) as saved:
        kept = None if seed is not None or saved is None else saved.about.get("seed")
        loop = _Loop(
            algorithm, env, env_args, hyper, asked, episodes, sampled,
            chosen_seed(seed if kept is None else kept, "psro"), saved,
        )  # fmt: skip
        result, done = loop.started(), 0
        if saved is not None:
            saved.check(loop.about(given if callable(meta_strategy) else meta_strategy, exploitability))
            done = loop.restored(result, iterations)
        for i in range(done + 1, iterations + 1):
            before = result.strategies
            responses = loop.grow(result, i)
            result.gains.append(_gains(result.payoffs, before))
            result.strategies = given(result.payoffs)
            if exploitability:
                result.exploitability.append(exploitability_of(result.agents(), env, env_args))
            if saved is not None:
                saved.write(responses, result.numbers())
    return result


@dataclass(frozen=True)
class _Loop:
    """The parts of an iteration, with the arguments of `psro`."""

    algorithm: Any
    env: Any
    env_args: Mapping[str, Any] | None
    hyper: Mapping[str, Any]
    trainer: Mapping[str, Any]
    episodes: int
    sampled: bool
    seed: int
    saved: SavedPSRO | None

    def about(self, meta_strategy: str | MetaStrategy, exploitability: bool) -> dict[str, Any]:
        """Return the arguments that a resumed call must repeat."""
        source, agents = resolve(self.env, self.env_args), self._made("about", 0, 0)
        named = meta_strategy if isinstance(meta_strategy, str) else described_function(meta_strategy)
        return {
            "env": source.name, "env_args": described_argument(dict(source.arguments)),
            "agents": [described_agent(agent) for agent in agents], "threads": threads(agents),
            "trainer": {name: _described(value) for name, value in self.trainer.items() if name not in FREE},
            "meta_strategy": named, "episodes": self.episodes, "sampled": self.sampled,
            "exploitability": exploitability, "seed": self.seed,
        }  # fmt: skip

    def started(self) -> PSROResult:
        """Return populations of a random policy each."""
        first = (
            RandomAgent(seed=child_seed(self.seed, "random", 0)),
            RandomAgent(seed=child_seed(self.seed, "random", 1)),
        )
        alone = np.ones(1)
        result = PSROResult(([first[0]], [first[1]]), np.zeros((2, 0, 0)), (alone, alone))
        result.payoffs = self._payoffs(result)
        return result

    def restored(self, result: PSROResult, iterations: int) -> int:
        """Restore the iterations that have ended; return their number. Raises ConfigError for fewer iterations."""
        if self.saved is None:
            return 0
        done, numbers = self.saved.read()
        if done > iterations:
            raise ConfigError(
                f"psro: {self.saved.path} holds {done} iterations, and iterations={iterations} asks for fewer: give at "
                f"least {done}"
            )
        for i in range(1, done + 1):
            for p, population in enumerate(result.populations):
                agent = self._made("response", i, p)[p]
                self.saved.restore(agent, p, i)
                population.append(self._policy(agent))
        if done:
            result.payoffs, (first, second) = numbers["payoffs"], numbers["strategies"]
            result.strategies = first, second
            result.gains, result.exploitability = numbers["gains"].tolist(), numbers["exploitability"].tolist()
        return done

    def grow(self, result: PSROResult, i: int) -> tuple[Agent, Agent]:
        """Add a best response of each player to the strategy of the other, and the payoffs of the new pairs.

        Returns the agents that were trained.
        """
        mixed = result.agents()
        responses = self._response(0, mixed[1], i), self._response(1, mixed[0], i)
        for population, response in zip(result.populations, responses, strict=True):
            population.append(self._policy(response))
        result.payoffs = self._payoffs(result)
        return responses

    def _made(self, purpose: str, i: int, p: int) -> list[Agent]:
        seed = child_seed(self.seed, purpose, i, p)
        return list(make_agents(self.algorithm, self.env, env_args=self.env_args, seed=seed, **self.hyper))

    def _policy(self, agent: Agent) -> Agent:
        """Return a copy of a trained agent, as it plays in the population."""
        return agent.frozen_copy() if self.sampled else FrozenAgent(agent)

    def _response(self, p: int, opponent: Agent, i: int) -> Agent:
        """Train a new agent of player p against an opponent, or go on with its training; return it."""
        made, seed = self._made("response", i, p)[p], child_seed(self.seed, "response", i, p)
        own, resume = dict(self.trainer), None
        if self.saved is not None:
            folder = own["run_dir"] = self.saved.training(p, i)
            callbacks = tuple(own.get("callbacks", ()))
            own["callbacks"] = callbacks if sole(callbacks) else (*callbacks, Checkpoint(every_minutes=1, keep=1))
            resume = folder if newest(folder) is not None else None
        trainer = DecentralizedTrainer(self.env, env_args=self.env_args, **{"seed": seed, **own})
        if self.saved is not None:
            trainer.setup = replace(trainer.setup, only_checkpoints=True)
        line_up = [made, opponent] if p == 0 else [opponent, made]
        trainer.train(line_up, [1 - p, p], plot=False, resume=resume, on_interrupt="raise")
        return made

    def _payoffs(self, result: PSROResult) -> Array:
        """Return the payoffs of all pairs, of which those that are known are not played again."""
        rows, columns = map(len, result.populations)
        payoffs, (known_rows, known_columns) = np.zeros((2, rows, columns)), result.payoffs.shape[1:]
        payoffs[:, :known_rows, :known_columns] = result.payoffs
        tester = DecentralizedTrainer(
            self.env, env_args=self.env_args, seed=child_seed(self.seed, "payoffs"), progress=False, run_dir=False
        )
        for i in range(rows):
            for j in range(columns):
                if i >= known_rows or j >= known_columns:
                    pair = [result.populations[0][i], result.populations[1][j]]
                    payoffs[:, i, j] = tester.test(pair, self.episodes, sampled=True).returns.mean(0)
        return payoffs


def _described(value: Any) -> Any:
    return described_function(value) if callable(value) else described_argument(value)


def _gains(payoffs: Array, before: Strategies) -> list[float]:
    """Return how much more the newest policies gain than the strategies before, against the strategies before."""
    mine, theirs = before
    value = [float(mine @ own[:-1, :-1] @ theirs) for own in payoffs]
    return [float(payoffs[0, -1, :-1] @ theirs) - value[0], float(mine @ payoffs[1, :-1, -1]) - value[1]]
