"""The table of a gradient step: its recordings for blocks of rows, then clipping and optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from marltrain.policies.learner.gradient_step import ERRORS, TOTAL, Clipped, GradientStep
from marltrain.policies.learner.programs.recorded_noise import recorded_halves, recorded_noise
from marltrain.policies.learner.programs.recorded_step import (
    COLUMNS,
    DUE,
    HYPER,
    MEASURED,
    agents_of,
    arrays_in,
    hyper_of,
    recorded_losses,
    recorded_over_rows,
)
from marltrain.policies.learner.trained_team import ALONE, OF_TEAM, Columns
from marltrain.policies.optimizers import OPTIMIZER_NUMBERS
from marltrain.policies.tape import ops
from marltrain.policies.tape.assembly.assemble import assemble
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.segments import GRADIENT
from marltrain.policies.tape.assembly.steps import OptimizerNumbers, write_norms, write_optimizer
from marltrain.policies.tape.assembly.table import Role, Section, Table
from marltrain.policies.tape.interpreter.runs import FEW_ROWS
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Symbol, Tape

NORM, FACTOR, FINE, GOING = "norm", "factor", "fine", "going"
"""Beginnings of the names of numbers between the gradients and the optimizers: of a network, or of a member."""
OF_SEGMENTS: dict[str, Role] = {f"{MEASURED}/{ERRORS}": "rows", f"{MEASURED}/{TOTAL}": "own sum"}
"""Roles of what losses give beside metrics."""
MOST_GROUPS = 4
"""Groups of blocks of an agent's rows."""
WEIGHT = f"{COLUMNS}/{ALONE}/weight"
"""The segment of the weights of rows of agents alone."""


@dataclass(frozen=True)
class StepTable:
    """The table of a gradient step for columns of fixed shapes.

    blocks, rests: blocks of rows of an agent, and smaller ones behind them; a team has one block, of all rows.
    groups: of blocks, which threads may compute at the same time.
    metrics: names of the metrics, [K] each.
    """

    table: Table
    blocks: int
    rests: int
    groups: int
    metrics: tuple[str, ...]


def step_table(
    step: GradientStep, columns: Columns, block: int, rest: int = 0, rows: int | None = None,
    dealt: Iterable[str] = (), *, moves: bool = True,
) -> StepTable:  # fmt: skip
    """Record the step of a phase for columns of the shapes and types of `columns`, arrays.

    The program computes one of the agents alone at a time, in blocks of `block` rows; all agents of a team at once.
    rest: of the smaller blocks behind them; 0: one, of the rows that remain.
    rows: of a minibatch, whose numbers among those of the columns are the segment `table.INDEX`; None: the columns are
      those of a minibatch.  dealt: the segments of columns of which each minibatch has its own.
    moves: whether it moves the weights; otherwise it ends with the metrics of the loss, and with the gradients, and
    measures no noise.  Otherwise `block` is even while the gradient noise is measured, see `recorded_halves`.
    Raises an exception of any type for what cannot be recorded.
    """
    recordings: dict[Section, Recording] = {}
    blocks, rests = 1, 0
    if step.team.is_joint:
        recordings["block"] = recorded_losses(step, columns, None)
    else:
        recordings["before"] = before = recorded_over_rows(step, columns, rows)
        blocks, behind = divmod(columns[ALONE]["weight"].shape[1] if rows is None else rows, block)
        rest = rest or behind
        rests = -(-behind // rest) if rest else 0
        sizes: dict[Section, int] = {"block": block if blocks else 0, "rest": rest}
        record = recorded_halves if step.measures and moves else recorded_losses
        for section, size in sizes.items():
            if size:
                recordings[section] = record(step, columns, size, before.outputs)
    sums = next(recordings[section].outputs for section in ("block", "rest") if section in recordings)
    measured = {name: value for name, value in sums.items() if name.startswith(f"{MEASURED}/")}
    gradients: Role = ("own" if step.measures else "own sum") if moves else "sum"
    given: Role = "rows" if rows is None else "gathered"
    made = recordings["before"].outputs if "before" in recordings else {}
    roles = _roles(step, columns, made, measured, given, dealt)
    roles |= dict.fromkeys(sums.keys() - measured.keys(), "own sum")
    roles |= {f"{GRADIENT}{name}": gradients for name in step.trains}
    assembler = Assembler(roles, by_agent=not step.team.is_joint)
    for section, recording in recordings.items():
        assemble(assembler, section, recording)
    names = [*measured, *(_write_moves(assembler, step, measured) if moves else ())]
    metrics = [name.removeprefix(f"{MEASURED}/") for name in names]
    shown = tuple(name for name in metrics if name not in (ERRORS, TOTAL))
    most = MOST_GROUPS if blocks or rests * rest >= FEW_ROWS else 1
    return StepTable(assembler.table(), blocks, rests, max(1, min(blocks + rests, most)), shown)


def _roles(
    step: GradientStep, columns: Columns, made: Mapping[str, Symbol], measured: Iterable[str], given: Role,
    dealt: Iterable[str],
) -> dict[str, Role]:  # fmt: skip
    """Return the roles of the segments that are not the arrays of an agent, or of a team.

    made: what is computed over all rows.  measured: the metrics of the losses.  given: the role of columns, but of
    those that are `dealt`.
    """
    roles: dict[str, Role] = dict.fromkeys((f"{NORM}/{name}" for name in step.trains), "own")
    roles |= dict.fromkeys((f"{what}/{key}" for what in (FACTOR, FINE, GOING) for key in agents_of(step)), "own")
    if step.team.is_joint:
        return roles | dict.fromkeys(_numbers_of_team(step), "own")
    roles |= {name: given for name, array in arrays_in(columns, COLUMNS).items() if array.ndim > 1}
    roles |= dict.fromkeys(dealt, "rows")
    for name, value in made.items():
        roles[name] = "own rows" if value.ndim > 1 else "own"
    for name in measured:
        roles[name] = OF_SEGMENTS.get(name, "sum")
    return roles


def _write_moves(assembler: Assembler, step: GradientStep, measured: Mapping[str, Symbol]) -> list[str]:
    """Write clipping and the steps of optimizers; return the segments of the metrics of norms and of gradient noise.

    measured: the segments of the losses' metrics.
    """
    agents, outputs = agents_of(step), list[str]()
    for name in step.trains:
        shape = (agents[name.split("/")[0]], int(step.team.nets[name].flat.shape[1]))
        assembler.segment(f"weights/{name}", shape, "float", "after")  # also if no loss reads it
    if step.measures:
        outputs += _appended(assembler, recorded_noise(step))
    for name in step.trains:
        write_norms(assembler, name, f"{NORM}/{name}")
    outputs += _appended(assembler, _clipping(step, measured))
    for name in step.trains:
        member, numbers = _optimizer_numbers(step, name)
        rule = step.team.members[member].algorithm.settings.optimizer
        write_optimizer(assembler, name, rule, step.team.optimizers[name].epsilon, numbers)
    return [name for name in outputs if name.startswith(f"{MEASURED}/")]


def _appended(assembler: Assembler, recording: Recording) -> list[str]:
    """Append a recording behind all rows; return the names of its outputs."""
    assemble(assembler, "after", recording)
    return list(recording.outputs)


def _clipping(step: GradientStep, measured: Mapping[str, Symbol]) -> Recording:
    """Record the factors of gradients, whether they are finite, which agents go on, and the metrics of norms."""
    tape, agents, joint = Tape(), agents_of(step), step.team.is_joint
    hyper, due = hyper_of(tape, step), dict[str, Symbol | None]()
    for key, count in agents.items():
        due[key] = None if key == OF_TEAM else tape.input(f"{DUE}/{key}", (count,), "bytes")
    norms = []
    for name in step.trains:
        key = name.split("/")[0]
        norm, learns = tape.input(f"{NORM}/{name}", (agents[key],)), due[key]
        norms.append(norm if learns is None else ops.where(learns, norm, 0.0))
    total = f"{MEASURED}/{TOTAL}"
    loss = tape.input(total, measured[total].shape)
    factors, fine = step.factors(ops, [ops.square(norm) for norm in norms], loss, hyper)
    read = {
        name.removeprefix(f"{MEASURED}/"): tape.input(name, value.shape)
        for name, value in measured.items() if not joint and value.ndim == 1
    }  # fmt: skip
    going = step.going(read, hyper, due)
    outputs = {
        f"{what}/{key}": value.broadcast((agents[key],))
        for what, values in ((FACTOR, factors), (FINE, fine), (GOING, going))
        for key, value in values.items() if value is not None
    }  # fmt: skip
    for name, value in step.norms(ops, Clipped([], norms, factors, fine)).items():
        outputs[f"{MEASURED}/{name}"] = value.broadcast((step.team.num_agents if joint else 1,))
    for name, (first, number) in _numbers_of_team(step).items():
        outputs[name] = hyper[first][number][:1, 0]
    return Recording(tape, outputs, ())


def _optimizer_numbers(step: GradientStep, name: str) -> tuple[str, OptimizerNumbers]:
    """Return the member whose settings the optimizer of a network has, and the segments that it reads."""
    key, network = name.split("/")
    member, rate = step.rate_of(key, network)
    known = step.team.members[member].algorithm.numbers()
    of = {number: f"{HYPER}/{key}/{number}" if number in known else None for number in OPTIMIZER_NUMBERS}
    decay = of["weight_decay"] if step.team.nets[name].decays else None
    going = None if key == OF_TEAM else f"{GOING}/{key}"
    factor, fine = f"{FACTOR}/{key}", f"{FINE}/{key}"
    return member, OptimizerNumbers(f"{HYPER}/{key}/{rate}", factor, fine, going, decay, of["momentum"])


def _numbers_of_team(step: GradientStep) -> dict[str, tuple[str, str]]:
    """Return the segments of the numbers of the team's optimizers: (member, number), of which it has the first."""
    if not step.phase.team_trains:
        return {}
    rates = [step.rate_of(OF_TEAM, network) for network in step.phase.team_trains]
    known = step.team.members[ALONE].algorithm.numbers()
    others = [(ALONE, number) for number in OPTIMIZER_NUMBERS if number in known]
    return {f"{HYPER}/{OF_TEAM}/{number}": (member, number) for member, number in (*rates, *others)}
