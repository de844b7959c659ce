"""Update frequencies and batch sizes of learners: their checks, and the rows that the streams must keep for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.spec import EnvSpec
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.policies.memory.joint_actions import joint_action_size
from marltrain.policies.memory.needs import Column
from marltrain.policies.memory.states import state_size
from marltrain.policies.memory.streams import Storage
from marltrain.trainer.seats.seats import LearnerSeats, Seats, TeamSeats


@dataclass(frozen=True)
class Defaults:
    """The trainer's values for learners that set none of their own.

    given: names of those that the user gave; the others yield to the defaults of an algorithm.
    """

    batch_size: int
    update_freq: int
    shared_memory: bool
    given: frozenset[str] = frozenset()

    def value(self, name: str, own: int | None, of_algorithm: int | None) -> int:
        """Return the first that is given: a learner's own value, the trainer's argument, the algorithm's default.

        Without any of them, it is the trainer's default.
        """
        of_trainer: int = getattr(self, name)
        if own is not None:
            return own
        return of_trainer if name in self.given or of_algorithm is None else of_algorithm


def schedule_of(seated: Seats, defaults: Defaults) -> UpdateSchedule:
    """Return the update schedule of a learner, with the defaults of its algorithm or the trainer's values filled in."""
    own = seated.learner.update_schedule
    return replace(
        own,
        update_freq=defaults.value("update_freq", own.update_freq, own.default_update_freq),
        batch_size=batch_size_of(own, defaults),
    )


def batch_size_of(schedule: UpdateSchedule, defaults: Defaults) -> int:
    """Return the number of rows of a batch; the learner's own number may change in training."""
    return defaults.value("batch_size", schedule.batch_size, schedule.default_batch_size)


def check_schedule(seated: LearnerSeats, spec: EnvSpec, num_envs: int, defaults: Defaults) -> None:
    """Raise ConfigError for a batch larger than one rollout, or for on-policy learners that share memory.

    A batch size that is a default may be larger: a rollout is then one batch. It also refuses batches with fewer rows
    than the normalization of advantages needs, a memory of earlier rows that never holds any, and shared memory with
    recurrent networks.
    """
    needs, schedule, who = seated.learner.needs, schedule_of(seated, defaults), seated.who
    if needs is not None and needs.block and defaults.shared_memory and not seated.all_frozen:
        raise ConfigError(
            f"shared_memory=True, but the agent of {who} has a recurrent network: the rows of other agents hold the "
            "carries of their own networks. Leave it out; one agent in several seats (share=True) learns from all of "
            "them without it"
        )
    if needs is None or not needs.on_policy or seated.all_frozen:
        return
    if defaults.shared_memory and not needs.shared:
        raise ConfigError(
            f"shared_memory=True, but the agent of {who} learns on-policy: steps of other agents do not follow its "
            "policy. Share memory among off-policy agents (DQN) or agents that correct for it (SEAC), or one agent "
            "between the seats"
        )
    if schedule.minibatches is None and (schedule.batch_size or 1) < schedule.least_rows:
        raise ConfigError(
            f"batch_size={schedule.batch_size}, but the agent of {who} normalizes advantages by their standard "
            f"deviation, which takes {schedule.least_rows} rows. Raise batch_size, or make the algorithm with "
            "advantage_normalization=False"
        )
    _check_replayed(seated, schedule, num_envs)
    asked = "batch_size" if schedule.minibatches is None else "minibatches"
    default = (
        asked == "batch_size" and seated.learner.update_schedule.batch_size is None and asked not in defaults.given
    )
    check_rollout(seated, spec, num_envs, defaults, asked, schedule.least_rows if default else getattr(schedule, asked))


def _check_replayed(seated: LearnerSeats, schedule: UpdateSchedule, num_envs: int) -> None:
    """Raise ConfigError for a memory of an on-policy learner that never holds rows earlier than the present rollout."""
    needs, learner, steps = seated.learner.needs, seated.learner, batch_steps_left(schedule, num_envs)
    if needs is None or needs.replay is None:
        return
    rollout, without = steps * num_envs, {}
    if needs.capacity <= rollout:
        without["capacity"] = str(needs.capacity)
    if isinstance(learner, AlgorithmLearner) and learner.memory is not None:
        constants = [value for value in learner.memory.constants("window") if value is not None]
        if any(value * (needs.capacity if value <= 1 else 1) <= rollout for value in constants):
            without["window"] = f"{min(constants):g}"
    clear = needs.replay.clear_every
    if clear is not None and drops_all_earlier(-(-clear // num_envs), steps):
        without["clear_every"] = str(clear)
    for name, value in without.items():
        raise ConfigError(
            f"memory=Replay({name}={value}) of the agent of {seated.who} holds no row that is earlier than a rollout "
            f"of {rollout} env steps. Raise {name}, or lower update_freq (now {schedule.update_freq} env steps)"
        )


def drops_all_earlier(clear: int, rollout: int) -> bool:
    """Return whether rollouts of `rollout` batch steps find no earlier row, if all are dropped every `clear` ones.

    At an update, the rows of the last n mod clear batch steps are left, for a multiple n of `rollout`: at most
    clear - gcd(clear, rollout) of them. The newest `rollout` are those of the rollout itself.
    """
    return clear - math.gcd(clear, rollout) <= rollout


def check_rollout(
    seated: LearnerSeats, spec: EnvSpec, num_envs: int, defaults: Defaults, asked: str, value: int
) -> None:
    """Raise ConfigError for a batch size or number of minibatches larger than one rollout of an on-policy learner.

    asked: the name of the number, for the error.  The rows of a turn-based game are not known in advance.
    """
    needs, schedule = seated.learner.needs, schedule_of(seated, defaults)
    if spec.turn_based or needs is None or not needs.on_policy:
        return
    held, who = seated.players.shape[1], seated.who
    steps = batch_steps_left(schedule, num_envs)
    rows = steps * num_envs * held
    if value > rows:
        seats = f" x {held} seats" if held > 1 else ""
        raise ConfigError(
            f"{asked}={value} exceeds one rollout of the agent of {who}: {steps} batch steps x "
            f"{num_envs} environments{seats} = {rows} rows. Raise update_freq (now {schedule.update_freq} env steps) "
            f"or lower {asked}"
        )
    sequences = -(-rows // (needs.block or 1))
    if asked == "minibatches" and value > sequences:
        raise ConfigError(
            f"minibatches={value} exceeds the {sequences} sequences of {needs.block} rows in a rollout of the agent of "
            f"{who}, which has a recurrent network. Raise update_freq (now {schedule.update_freq} env steps), or lower "
            "minibatches or sequence_length"
        )


def check_state(seated: LearnerSeats, spec: EnvSpec) -> None:
    """Raise AgentError for agents that read a global state of another size than the environment's."""
    needs = seated.learner.needs
    if needs is None or needs.state is None or seated.all_frozen:
        return
    size = state_size(spec, needs.state.kind)
    if size != needs.state.size:
        raise AgentError(
            f"the agent of {seated.who} reads a global state of {needs.state.size} values (state_size), and that of "
            f"{spec.name} has {size}: make the agent with make_agents for this environment, or with state_size={size}"
        )


def check_team(seated: Seats, spec: EnvSpec, defaults: Defaults) -> None:
    """Raise ConfigError for agents that learn together in a turn-based game, or with shared memory."""
    if not isinstance(seated, TeamSeats):
        return
    name = seated.learner.algorithm.name
    if spec.turn_based:
        raise ConfigError(
            f"{name}: the agents of {seated.who} learn together from decisions at the same time, and in {spec.name} "
            "players move one after another. Take agents that learn alone, or with a central critic (mappo)"
        )
    if defaults.shared_memory:
        raise ConfigError(
            f"shared_memory=True, but the agents of {seated.who} ({name}) already learn together from the rows of "
            "all: leave it out"
        )


def check_joint_actions(seated: LearnerSeats, spec: EnvSpec) -> None:
    """Raise AgentError for agents that read joint actions of another size than those of the environment."""
    needs = seated.learner.needs
    if needs is None or not needs.joint_actions or seated.all_frozen:
        return
    size = joint_action_size(spec)
    if size != needs.joint_actions:
        raise AgentError(
            f"the agent of {seated.who} reads joint actions of {needs.joint_actions} values (joint_action_size), and "
            f"those of {spec.name} have {size}: make the agent with make_agents for this environment, or with "
            f"joint_action_size={size}"
        )


def batch_steps_left(schedule: UpdateSchedule, num_envs: int, env_steps: int = 0) -> int:
    """Return the number of batch steps until an update is due, `env_steps` env steps after the last one."""
    return -(-((schedule.update_freq or 1) - env_steps) // num_envs)


def updates_due(schedule: UpdateSchedule, credit: float, env_steps: int) -> tuple[int, float]:
    """Return the number of off-policy updates due after `env_steps` env steps, and the fraction carried over.

    credit: fraction of an update carried over from before.
    """
    credit += schedule.update_per_step * env_steps
    return int(credit), credit - int(credit)


def storage_for(learners: list[LearnerSeats], spec: EnvSpec, num_envs: int, defaults: Defaults) -> dict[int, Storage]:
    """Return, by group, what the streams must keep: the largest number of rows of a learner, and all columns and trees.

    learners: those whose rows are read (`Seating.recorded`). If one of them reads the actions of all players, all
    groups are stored, with equal numbers of rows.
    Raises ConfigError if two learners use one column name for different kinds of arrays.
    """
    rows: dict[int, int] = {}
    trees: dict[int, int] = {}
    reservoirs: dict[int, int] = {}
    columns: dict[int, dict[str, Column]] = {}
    states: dict[int, set[str]] = {}
    joint = False
    for seated in learners:
        needs, schedule = seated.learner.needs, schedule_of(seated, defaults)
        if needs is None:
            continue
        joint = joint or needs.joint_actions > 0
        waiting = len(spec.players) - 1 if spec.turn_based else 0  # a row stays open while the others move
        rollout = batch_steps_left(schedule, num_envs) + 1 if needs.on_policy else 0
        kept = max(rollout, -(-needs.capacity // num_envs), 1)
        rows[seated.group] = max(rows.get(seated.group, 0), kept + waiting)
        reservoirs[seated.group] = max(reservoirs.get(seated.group, 0), needs.reservoir)
        states.setdefault(seated.group, set()).update([] if needs.state is None else [needs.state.kind])
        if needs.replay is not None and not needs.replay.uniform:
            read = len(spec.groups[seated.group].players) if defaults.shared_memory else seated.players.shape[1]
            trees[seated.group] = trees.get(seated.group, 0) + len(seated.agents) * read
        known = columns.setdefault(seated.group, {})
        for name, column in needs.columns.items():
            if known.setdefault(name, column) != column:
                raise ConfigError(
                    f"the agents of {seated.who} keep {name!r} as {column}, others of equal spaces as "
                    f"{known[name]}: give the two another name each"
                )
    if joint:
        rows = dict.fromkeys(range(len(spec.groups)), max(rows.values()))
    return {
        group: Storage(
            kept, columns.get(group, {}), tuple(sorted(states.get(group, ()))), joint, trees.get(group, 0),
            reservoirs.get(group, 0),
        )
        for group, kept in rows.items()
    }  # fmt: skip
