"""Arguments of the compiled gradient step of a team."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, f32
from marltrain.policies.backends.base import Backend, Optimizer, StackedNetwork
from marltrain.policies.compiled.array_checks import check_places, place_of
from marltrain.policies.compiled.mixer_kernel import MIXER
from marltrain.policies.compiled.q_networks import ROWS, QNetworks
from marltrain.policies.compiled.team_kernel import (
    METRICS,
    MIXER_NORM,
    TEAM_STEP,
    team_step,
    team_step_at,
    update_team_targets,
)
from marltrain.policies.compiled.trained_network import TrainedNetwork, allocate
from marltrain.policies.interface.algorithm import CompiledForm, MixerForm
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.trained_team import ALONE, OF_TEAM, Columns, TrainedTeam
from marltrain.policies.optimizers import OPTIMIZER_NUMBERS

OF_AGENTS = ("present", "next_present", "learned")
"""Further columns of the member, [K, S * B]; the last one may be missing."""
OF_STEPS, STATES = ("reward", "discount", "weight"), ("state", "next_state")
"""Columns of the team, [1, B] and [1, B, S]."""


class TeamStep:
    """A `GradientStep` of value mixing in compiled code, in place on the arrays of the framework.

    record: [1] TEAM_STEP, the arguments of the kernel.  metrics: the names of the metrics.
    indices: field of the record -> index of the hyperparameter that it holds.
    seats: of each agent.
    """

    def __init__(
        self, team: TrainedTeam, form: CompiledForm, nets: Mapping[str, StackedNetwork],
        optimizers: Mapping[str, Optimizer],
    ) -> None:  # fmt: skip
        """Write the constant fields of `record` for a team with one member; see `gradient_steps.compiled_steps`.

        nets, optimizers: those of the member and of the team by their own names.
        """
        algorithm, self.backend, (self.seats,), order = team.algorithm, team.backend, team.seats, team.order
        self.names, self.name, rule = algorithm.numbers(), form.network, algorithm.settings.optimizer
        self.number, (self.phase,) = 0, algorithm.phases
        self.record, self.batch = np.zeros(1, TEAM_STEP), 0
        record, double = self.record[0], form.loss == "double_mixed_q"
        self._networks = QNetworks(record, nets, optimizers, self.name, rule, self.backend, double=double)
        self.agents = self._networks.agents
        self._mixer = None if form.mixer is None else Mixer(form.mixer, nets, optimizers, rule, self.backend, order)
        trained = (self.name,) if form.mixer is None else (self.name, form.mixer.network)
        norms = [f"{what}/{name}" for name in trained for what in ("grad_norm", "grad_norm_clipped")]
        self.metrics: tuple[str, ...] = ("loss/total", "q_mean", *norms)
        read = {"limit": "max_grad_norm", "rate": algorithm.rate_name(self.name), **{n: n for n in OPTIMIZER_NUMBERS},
                "mixer_rate": algorithm.rate_name(trained[-1])}  # fmt: skip
        self.indices = {field: self.names.index(hyper) for field, hyper in read.items()}
        measured = METRICS if self._mixer else MIXER_NORM
        self._measured = np.zeros((measured, self.agents), np.float32)
        record["players"], record["measured"] = len(order), measured
        record["mixer"] = self._mixer.address if self._mixer else 0
        self.address = address_of(self.record)

    def __call__(self, columns: Columns, numbers: Mapping[str, Any], due: Array) -> Any:
        """Make a gradient step; see `GradientStep`."""
        rows = self._arrays(columns[ALONE], (*ROWS, *OF_AGENTS))
        team = self._arrays(columns[OF_TEAM], (*OF_STEPS, *STATES))
        self.set_batch(due, rows, team)
        check_places("actions", rows["action"], self._networks.choices)
        hyper = self.backend.numpy(numbers[ALONE])
        for field, index in self.indices.items():
            self.record[field] = address_of(hyper[index])
        self.record["metrics"] = address_of(self._measured)
        team_step_program()(self.address)
        return self.backend.tensor(self._measured.copy())

    def _arrays(self, columns: Mapping[str, Any], names: Sequence[str]) -> dict[str, Array | None]:
        return {name: None if columns[name] is None else self.backend.numpy(columns[name]) for name in names}

    def set_batch(self, due: Array, rows: Mapping[str, Array | None], team: Mapping[str, Array | None]) -> None:
        """Write which agents learn, [K] bool, and the addresses of the columns of a minibatch.

        rows: columns `ROWS` and `OF_AGENTS` of the agents.  team: `OF_STEPS` and `STATES` of the team.
        """
        reward = team["reward"]
        batch = 0 if reward is None or reward.ndim != 2 else reward.shape[1]
        count = self.seats * batch
        places = {
            "share" if name == "weight" else name: place_of(name, team[name], np.float32, (1, batch))
            for name in OF_STEPS
        }
        places |= self._networks.places(rows, count)
        places |= {
            name: 0
            if rows[name] is None and name == "learned"
            else place_of(name, rows[name], np.bool_, (self.agents, count))
            for name in OF_AGENTS
        }
        if self._mixer:
            self._mixer.set_states(team, batch)
        if batch != self.batch:
            players = int(self.record[0]["players"])
            self._networks.allocate(
                count, kept=self.agents, values=players * batch, slopes=players * batch, targets=batch, totals=batch
            )
            self.record["batch"] = self.batch = batch
            self.record["stored"] = self._networks.stored(count)
        self._networks.due[...] = due
        for field, place in places.items():
            self.record[field] = place

    def update_targets(self, share: Array, of_team: float) -> None:
        """Move the target networks towards the online networks: those of the agents by shares [K], and the mixer."""
        shares = np.array([*share, of_team], np.float32)
        _update_targets()(self.address, address_of(shares))


class Mixer:
    """The mixer of a team in the fields of a record.

    record: [1] MIXER, the arguments of the kernel.
    """

    def __init__(
        self, mixer: MixerForm, nets: Mapping[str, StackedNetwork], optimizers: Mapping[str, Optimizer], rule: str,
        backend: Backend, order: Sequence[int],
    ) -> None:  # fmt: skip
        """Write the constant fields of `record`; see `TeamStep`."""
        self.record = np.zeros(1, MIXER)
        record = self.record[0]
        self._network = TrainedNetwork(record, nets[mixer.network], optimizers[mixer.network], rule, backend)
        self._kept = nets[f"target_{mixer.network}"].numbers(), np.array(order, np.int64)
        self._work: list[Array] = []
        record["target"], record["order"] = map(address_of, self._kept)
        record["players"], record["units"], record["skip"] = len(order), mixer.units, mixer.skip
        self.address = address_of(self.record)

    def set_states(self, team: Mapping[str, Array | None], batch: int) -> None:
        """Write the addresses of the states, [1, batch, S]."""
        shape = (1, batch, self._network.widths[0])
        places = {name: place_of(name, team[name], np.float32, shape) for name in STATES}
        if batch != self.record["rows"][0]:
            sizes = {**self._network.work_sizes(batch), "hidden": batch * int(self.record["units"][0])}
            self._work = allocate(self.record[0], sizes)
            self.record["rows"] = batch
        for name, place in places.items():
            self.record[name] = place


class TeamSteps(GradientSteps):
    """The single gradient step of a team in compiled code, which also updates the target networks."""

    plannable = True
    steps: list[TeamStep]

    def update_targets(self, share: Array, of_team: float = 0.0) -> None:
        """See `GradientSteps`."""
        if np.count_nonzero(share) or of_team:
            self.steps[0].update_targets(share, of_team)


@compiled
def step_once(address: int) -> int:
    """Make the gradient step of the TEAM_STEP at an address; return 1 if loss and gradients are finite, otherwise 0."""
    return 1 if team_step(team_step_at(address)) else 0


@compiled
def update_targets_once(address: int, shares: int) -> None:
    """Update the target networks of the TEAM_STEP at an address, by [K + 1] shares: of the agents and of the mixer."""
    t = team_step_at(address)
    update_team_targets(t, shares, f32(shares, t.agents + 1)[t.agents])


@functools.cache
def team_step_program() -> Any:
    """Return the compiled `step_once`, from the disk cache if it is there."""
    return program(step_once, MIXER, TEAM_STEP)


@functools.cache
def _update_targets() -> Any:
    return program(update_targets_once, MIXER, TEAM_STEP)
