"""Exploration rules for Discrete actions that have values, written with `ops`.

Random numbers are arguments, drawn from each agent's own stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.settings import setting
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.distributions.categorical import masked
from marltrain.policies.distributions.draws import gumbel_of, uniform_of
from marltrain.policies.exploration.warmup import Warmup
from marltrain.policies.hyperparameters.schedules import Schedule, linear
from marltrain.policies.ops import Ops

NOISE: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "epsilon_greedy": ("coin", "choice"),
    "softmax": ("gumbel",),
    "boltzmann": ("gumbel",),
    "max_boltzmann": ("coin", "gumbel"),
    "gumbel_softmax": ("coin", "choice", "relaxed", "gumbel"),
    "boltzmann_gumbel": ("gumbel",),
}
"""Names of the rules -> their random numbers: a coin, and a number for each action (a score, or Gumbel noise)."""
ACTION_COUNTS = "action_counts"
"""Name, among the numbers of an act, of how often each agent chose each action; see `Algorithm.counted_actions`."""


@dataclass(frozen=True, kw_only=True)
class DiscreteExploration(Warmup):
    """Settings of exploration by values; part of the settings of an algorithm for Discrete actions."""

    exploration: str | None = setting(
        None, doc="exploration rule; None: epsilon_greedy, or greedy with a noisy network", choices=tuple(NOISE)
    )
    epsilon: float | Schedule = setting(linear(1.0, 0.05, 20_000), doc="share of random legal actions when exploring",
                                        low=0, high=1, per_row=True)  # fmt: skip
    temperature: float | Schedule = setting(
        1.0, doc="divisor of the values (boltzmann, max_boltzmann, gumbel_softmax)", above=0, per_row=True
    )
    gumbel_scale: float | Schedule = setting(
        1.0, doc="scale of the noise on the values (boltzmann_gumbel)", low=0, per_row=True
    )


def epsilon_noise(rngs: Sequence[np.random.Generator], rows: int, choices: int) -> dict[str, Array]:
    """Draw "coin" [K, rows] and a score of each action, "choice" [K, rows, choices], uniform in [0, 1), float32."""
    drawn = uniform_of(rngs, rows, {"coin": 1, "choice": choices})
    return {**drawn, "coin": drawn["coin"][..., 0]}


def epsilon_greedy(ops: Ops, q: Any, legal: Any, noise: Mapping[str, Any], explore: Any, epsilon: Any) -> Any:
    """Return the best action [K, B]; where `explore`, a uniform legal action with probability epsilon [K, 1].

    Each row has its own coin (Watkins 1989).  q: values, `ILLEGAL` for illegal actions.
    """
    random = ops.argmax(masked(ops, noise["choice"], legal), -1)
    return ops.where(explore & (noise["coin"] < epsilon), random, ops.argmax(q, -1))


class ActionChoice:
    """Chooses among A actions by their values, with the rule and the numbers of `DiscreteExploration`.

    With v the values of the legal actions, an exploring seat takes

    - greedy: the action of the highest value.
    - epsilon_greedy: a uniformly random action with probability epsilon, else the best (Watkins 1989).
    - softmax: a sample of softmax(v).
    - boltzmann: a sample of softmax(v / temperature).
    - max_boltzmann: a sample of softmax(v / temperature) with probability epsilon, else the best (Wiering 1999).
    - gumbel_softmax: with probability epsilon a uniformly random action, else a sample of the relaxed one-hot vector
      softmax((v + Gumbel noise) / temperature) (Jang et al. 2017, arXiv:1611.01144). A low temperature gives samples of
      softmax(v), a high one uniform samples.
    - boltzmann_gumbel: the best of v + gumbel_scale / sqrt(n) * Gumbel noise, where n is how often the agent chose the
      action while exploring, at least 1 (Cesa-Bianchi et al. 2017, arXiv:1705.10257, algorithm 1).

    `random_share` of its actions are uniformly random in place of these. Other seats take the best action.
    """

    def __init__(self, settings: DiscreteExploration, choices: int, default: str = "epsilon_greedy") -> None:
        """Store the rule and the number of actions A.

        default: the rule if the settings name none.
        """
        self.rule, self.choices = settings.exploration or default, choices
        self.warms_up = settings.random_share is not None
        needed = {*NOISE[self.rule], *(("coin", "choice") if self.warms_up else ())}
        widths = {"coin": 1, "choice": choices, "gumbel": choices, "relaxed": choices}
        self._widths = {name: width for name, width in widths.items() if name in needed}

    @property
    def draws(self) -> bool:
        """Whether choosing uses random numbers."""
        return bool(self._widths)

    @property
    def compiled_rule(self) -> str | None:
        """The rule of `CompiledForm` that chooses the same actions, or None."""
        return "epsilon_greedy" if self.rule == "epsilon_greedy" and not self.warms_up else None

    @property
    def counted(self) -> int:
        """Number of actions whose choices are counted; 0 for a rule that needs no counts."""
        return self.choices if self.rule == "boltzmann_gumbel" else 0

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of one `choose`: "coin" [K, rows], others [K, rows, A], float32."""
        drawn = uniform_of(rngs, rows, self._widths) if self._widths else {}
        for name in drawn.keys() & {"gumbel", "relaxed"}:
            drawn[name] = gumbel_of(drawn[name])
        return {name: values[..., 0] if name == "coin" else values for name, values in drawn.items()}

    def choose(self, ops: Ops, values: Any, inputs: ActInputs) -> Any:
        """Return the actions [K, B] for values [K, B, A]; see the class.

        inputs: of the act, with "epsilon", "temperature", "gumbel_scale" and "random_share" in `hyper`, each [K, 1],
        and "action_counts" [K, A] for boltzmann_gumbel.
        """
        legal, noise = inputs.legal, inputs.noise
        best = ops.argmax(masked(ops, values, legal), -1)
        explored = self._explored(ops, values, inputs, best)
        if self.warms_up:
            random = ops.argmax(masked(ops, noise["choice"], legal), -1)
            explored = ops.where(noise["coin"] < inputs.hyper["random_share"], random, explored)
        return ops.where(inputs.explore, explored, best)

    def _explored(self, ops: Ops, values: Any, inputs: ActInputs, best: Any) -> Any:
        """Return the actions of exploring seats without warm-up, [K, B]."""
        legal, noise, hyper = inputs.legal, inputs.noise, inputs.hyper

        def sample(scores: Any) -> Any:
            return ops.argmax(masked(ops, scores + noise["gumbel"], legal), -1)

        def divided(scores: Any) -> Any:
            """Divide by the temperature; the best legal score becomes 0, so that none falls below `ILLEGAL`."""
            legal_scores = masked(ops, scores, legal)
            return masked(ops, (scores - ops.max(legal_scores, -1)[..., None]) / hyper["temperature"][..., None], legal)

        if self.rule == "greedy":
            return best
        if self.rule == "softmax":
            return sample(values)
        if self.rule == "boltzmann":
            return sample(divided(values))
        if self.rule == "boltzmann_gumbel":
            counts = hyper[ACTION_COUNTS]
            scale = hyper["gumbel_scale"] / ops.sqrt(ops.maximum(counts, ops.ones_like(counts)))
            return ops.argmax(masked(ops, values + scale[:, None] * noise["gumbel"], legal), -1)
        tossed = noise["coin"] < self._limit(hyper)
        if self.rule == "max_boltzmann":
            return ops.where(tossed, sample(divided(values)), best)
        random = ops.argmax(masked(ops, noise["choice"], legal), -1)
        if self.rule == "epsilon_greedy":
            return ops.where(tossed, random, best)
        relaxed = ops.log_softmax(divided(values + noise["relaxed"]), -1)
        return ops.where(tossed, random, sample(relaxed))

    def _limit(self, hyper: Mapping[str, Any]) -> Any:
        """Return the limit of the coin for probability epsilon; the warm-up uses coins below the random share."""
        share = hyper["random_share"]
        return share + (1.0 - share) * hyper["epsilon"] if self.warms_up else hyper["epsilon"]
