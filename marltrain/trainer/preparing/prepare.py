"""Preparation of a run: its parts are built and checked before training starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.core.errors import ConfigError, warn
from marltrain.core.layout import Array
from marltrain.core.seeds import child_seed
from marltrain.core.spec import EnvSpec
from marltrain.envs import VectorEnv
from marltrain.envs.goals import goal_reward
from marltrain.envs.matches import MatchesVectorEnv, divided
from marltrain.envs.population import PopulationVectorEnv, plain_names
from marltrain.envs.python.probe import closed
from marltrain.envs.rotating import RotatingVectorEnv
from marltrain.envs.rotation import Rotation
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.matches import Matches
from marltrain.policies.memory.states import OWN
from marltrain.policies.memory.streams import Storage, Streams
from marltrain.trainer.adapting.criterion import CriterionCallback
from marltrain.trainer.evaluating.evaluation import Evaluation
from marltrain.trainer.evaluating.population import PopulationEvaluation
from marltrain.trainer.events.callbacks import CallbackList
from marltrain.trainer.events.counters import Counters
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.preparing.built_in import built_in_callbacks
from marltrain.trainer.preparing.continuation import results_of, same_memory
from marltrain.trainer.preparing.preflight import (
    check_lag,
    check_line_up,
    check_matches,
    check_sets,
    rotation_of,
    warn_of_early_end,
)
from marltrain.trainer.preparing.resume import (
    arguments_of,
    check,
    check_resumable,
    seed_of,
    threads,
    versions,
)
from marltrain.trainer.preparing.run_config import record
from marltrain.trainer.saving.checkpoint import FOLDER, FoundCheckpoint, begun, find, run_of
from marltrain.trainer.saving.run_folder import RunFolder, default_name, existing_folder, new_folder
from marltrain.trainer.seats.by_player import in_seats, without_seats
from marltrain.trainer.seats.masks import Mask, as_exploration_mask, as_learning_mask
from marltrain.trainer.seats.seats import Seating, Seats
from marltrain.trainer.seats.team_reward import check_one_reward, try_team_reward
from marltrain.trainer.settings import TrainerSettings
from marltrain.trainer.training.context import EarlierRun, RunContext, TrainerSetup
from marltrain.trainer.training.run import Run, episode_columns
from marltrain.trainer.training.snapshot import check_frames
from marltrain.trainer.updating.asynchronous import AsyncScheduler, learning_thread
from marltrain.trainer.updating.planned import PlannedScheduler
from marltrain.trainer.updating.scheduler import UpdateScheduler
from marltrain.trainer.updating.update_schedule import (
    Defaults,
    check_joint_actions,
    check_rollout,
    check_schedule,
    check_state,
    check_team,
    storage_for,
)

if TYPE_CHECKING:
    from marltrain.trainer.cluster.learners import LearnerActors
    from marltrain.trainer.jobs.job import Job


@dataclass(frozen=True)
class TrainCall:
    """Arguments of a call of `train`.

    agents, test_agents: as given (`by_player.Agents`, `Matches`); of a `seated` call lists.
    previous: the trainer's last run, or None.  earlier: the run that this call continues (`go_on`), or None.
    """

    agents: Any
    learning_mask: Mask | None
    exploration_mask: Mask | None
    rotate: bool
    test_agents: Any
    rotate_tests: bool
    resume: str | Path | None
    any_threads: bool
    previous: Run | None
    earlier: Run | None

    def seated(self, spec: EnvSpec) -> TrainCall:
        """Return the call with an agent for each player; raises AgentError for mappings that do not fit."""
        test_agents = in_seats(self.test_agents, spec, "test_agents")
        if not isinstance(self.agents, Matches):
            return replace(self, agents=in_seats(self.agents, spec), test_agents=test_agents)
        test_agents = self.agents.tested(spec) if test_agents is None else test_agents
        return replace(self, agents=self.agents.seated(spec), test_agents=test_agents)

    @property
    def rotates(self) -> bool:
        """Whether the agents that play the tests change seats."""
        return (self.rotate or self.test_agents is not None) and self.rotate_tests


def prepare(setup: TrainerSetup, call: TrainCall, stack: ExitStack) -> tuple[RunContext, FoundCheckpoint | None]:
    """Build and check the parts of a run; return them, and the checkpoint to resume from.

    stack: gets the functions that close the parts.
    """
    at_last = stack.enter_context(ExitStack())  # environments may write into the folder until they are closed
    found, locked = _found(setup, call.resume, at_last)
    if found is not None:
        setup = replace(setup, seed=seed_of(found, setup.settings.seed))
    matches = call.agents.names if isinstance(call.agents, Matches) else ()
    replaces = setup.settings.on_fault != "raise"
    if matches:
        setup = check_matches(matches, setup)
    settings = setup.settings
    with_state = _read_state(without_seats(call.agents))
    result = setup.vector_env(settings.num_train_envs, "train", with_state=with_state, replaces=replaces)
    games = stack.enter_context(closed(result, setup.source.name))
    try_team_reward(setup.team_reward, plain_names(games.spec.names, len(setup.source.copies)))
    call = call.seated(games.spec)
    rotation = Rotation(games.spec)
    if call.rotate:
        rotation = rotation_of(games.spec, call.agents[:: max(1, len(matches))], setup)
        games = RotatingVectorEnv(games, rotation)
    envs = MatchesVectorEnv(games, matches) if matches else games
    spec, num_envs = envs.spec, envs.num_envs
    seating, line_up = _seatings(setup, call, spec, games.spec, stack)
    masks = learning, exploring = _masks(call, spec)
    earlier = _earlier(call, envs, seating, line_up, learning)
    manifest = _manifest(setup, call, spec, masks)
    if found is not None:
        check(found, manifest, any_threads=call.any_threads)
    defaults = Defaults(settings.batch_size, settings.update_freq, settings.shared_memory, settings.given)
    _check_learners(setup, seating, envs, defaults, learning, begun=earlier is not None)
    _prepare_callbacks(setup, call, seating, envs, defaults)
    evaluation = _evaluation(setup, stack) if settings.tests else None
    previous = None if found is not None else call.earlier or call.previous  # a checkpoint holds its own memory
    storage = storage_for(seating.recorded, spec, num_envs, defaults)
    streams = _streams(previous, envs, seating, storage)
    if _needs_goal_reward(seating):
        streams.goals_judged_by(goal_reward(setup.source, stack))
    schedulers, learner_actors = _schedulers(seating, streams, num_envs, defaults, settings, stack)
    if earlier is not None:
        for scheduler in schedulers:
            scheduler.follow(earlier.counters.updates, earlier.schedulers)
    budgets = Budgets.of(settings, Counters() if earlier is None else earlier.counters)
    job = _job(setup, spec, budgets, stack)
    checkpoints = _folder(setup, call, found, locked, at_last)
    folder = None if setup.only_checkpoints else checkpoints
    if folder is not None:
        tests = None if call.test_agents is None else (call.test_agents, call.rotates)
        record(folder.path, setup, spec, call.agents, masks, streams.full_size, tests, rotate=call.rotate)
    calls = 0 if previous is None else previous.calls
    path = None if folder is None else folder.path
    if job is not None:
        job.writes_to(path)
    built_in = built_in_callbacks(
        path, budgets, progress=settings.progress, display=setup.display, title=spec.name, job=job
    )
    context = RunContext(
        **vars(setup), envs=envs, evaluation=evaluation, seating=seating, line_up=line_up,
        rotation=rotation if call.rotates else None, learning=learning, exploring=exploring, streams=streams,
        storage=storage,
        schedulers=schedulers, learner_actors=learner_actors, folder=folder, checkpoints=checkpoints,
        call_number=calls + 1,
        env_seed=child_seed(setup.seed, "train", calls) if calls else setup.seed, budgets=budgets,
        all_callbacks=CallbackList([*built_in, *setup.callbacks]), manifest=manifest, earlier=earlier,
        job=job,
    )  # fmt: skip
    return context, found


def _read_state(agents: Any) -> bool:
    """Return whether an agent learns from the environment's own state; `Seating` checks the agents."""
    learning = [agent for agent in agents if isinstance(agent, LearningAgent)] if isinstance(agents, Sequence) else []
    needs = [agent.algorithm.needs().state for agent in learning]
    return any(need is not None and need.kind == OWN for need in needs)


def _found(
    setup: TrainerSetup, resume: str | Path | None, stack: ExitStack
) -> tuple[FoundCheckpoint | None, RunFolder | None]:
    """Lock the folder of the resumed run and read its checkpoint.

    Returns the checkpoint and the folder; each is None if there is none.
    """
    if resume is None:
        return None, None
    if setup.run_dir is False:
        raise ConfigError("run_dir=False writes nothing, but resume needs a folder: leave one of them out")
    try:
        run_dir = run_of(resume)
        folder = existing_folder(run_dir) if begun(run_dir) else None
        if folder is not None:
            stack.callback(folder.release)
        found = find(resume)
    except OSError as error:
        raise ConfigError(f"resume={str(resume)!r} cannot be read: {error.strerror}") from error
    if setup.run_dir is not None and setup.run_dir.resolve() != run_dir.resolve():
        raise ConfigError(f"run_dir is {str(setup.run_dir)!r}, but resume continues in {str(resume)!r}: leave one out")
    return found, folder


def _masks(call: TrainCall, spec: EnvSpec) -> tuple[Array, Array]:
    """Return the masks (learning, exploring), each [P] bool."""
    return as_learning_mask(call.learning_mask, spec, call.agents), as_exploration_mask(call.exploration_mask, spec)


def _seatings(
    setup: TrainerSetup, call: TrainCall, spec: EnvSpec, game: EnvSpec, stack: ExitStack
) -> tuple[Seating, Seating]:
    """Return the seats of the agents that train, and of those that play the tests; game: the players of tests."""
    seating = Seating(spec, call.agents, setup.seed, stack=True)
    for seated in seating.learners:
        stack.callback(seated.learner.close)
    if call.test_agents is None:
        return seating, seating
    line_up = Seating(game, call.test_agents, setup.seed, stack=False, what="test_agents")
    check_line_up(call.agents, call.test_agents)
    return seating, line_up


def _check_learners(
    setup: TrainerSetup, seating: Seating, envs: VectorEnv, defaults: Defaults, learning: Array, *, begun: bool
) -> None:
    """Check that each learner's settings fit the environment, the trainer and its teams; see `preflight`.

    learning: [P] bool.  begun: the run continues an earlier one.
    """
    settings, spec, num_envs = setup.settings, envs.spec, envs.num_envs
    for seated in seating.learners:
        check_schedule(seated, spec, num_envs, defaults)
        check_state(seated, spec)
        check_joint_actions(seated, spec)
    for updated in seating.updated:
        check_team(updated, spec, defaults)
        check_one_reward(updated, setup.team_reward)
    check_lag(seating.learners, settings.lag)
    check_sets(seating.agents, settings, copies=len(setup.source.copies))
    warn_of_early_end(
        seating.learners, learning, num_envs, defaults, settings.steps_per_train, begun=begun, matches=divided(envs)
    )


def _prepare_callbacks(
    setup: TrainerSetup, call: TrainCall, seating: Seating, envs: VectorEnv, defaults: Defaults
) -> None:
    """Prepare the callbacks for the run; raises ConfigError if one may set a batch that is larger than a rollout."""
    settings, spec = setup.settings, envs.spec
    for seated in seating.learners:  # callbacks then choose what is measured
        if seated.learner.measured is not None:
            seated.learner.measured.clear()
    for callback in setup.callbacks:
        callback.prepare(settings, dict(zip(spec.names, call.agents, strict=True)))
        for learner, size in callback.largest_batches() if isinstance(callback, CriterionCallback) else ():
            seated = next(each for each in seating.learners if each.learner is learner)
            check_rollout(seated, spec, envs.num_envs, defaults, f"{type(callback).__name__}'s high", size)


def _earlier(
    call: TrainCall, envs: VectorEnv, seating: Seating, line_up: Seating, learning: Array
) -> EarlierRun | None:
    """Return the results that the call continues, or None."""
    if call.earlier is None:
        return None
    rotate, own = call.rotates, call.earlier is call.previous
    return results_of(
        call.earlier, envs.spec, line_up.agents, rotate=rotate, learning=learning, own=own,
        columns=list(episode_columns(envs, seating.learners)),
    )  # fmt: skip


def _manifest(setup: TrainerSetup, call: TrainCall, spec: EnvSpec, masks: tuple[Array, Array]) -> dict[str, Any]:
    """Return the facts of the run for the manifest of its checkpoints.

    Raises AgentError for agents that a checkpoint cannot hold, and ConfigError for frame stacks without memory.
    """
    if setup.checkpoint is not None:
        check_resumable([*call.agents, *(call.test_agents or ())])
        check_frames(spec, memory=setup.checkpoint.settings.memory)
    return {
        "seed": setup.seed,
        "call": arguments_of(setup, spec, call.agents, call.test_agents, masks, rotate=call.rotate,
                             rotate_tests=call.rotate_tests),
        "versions": versions(), "threads": threads(call.agents), "reproducible": spec.reproducible,
    }  # fmt: skip


def _evaluation(setup: TrainerSetup, stack: ExitStack) -> Evaluation:
    """Return the Evaluation that plays the tests, in separate environments, which `stack` closes."""
    num_envs = min(setup.settings.num_test_envs, setup.settings.episodes_per_test)
    envs = stack.enter_context(closed(setup.vector_env(num_envs, "test"), setup.source.name))
    kind = PopulationEvaluation if isinstance(envs, PopulationVectorEnv) else Evaluation
    return kind(envs, setup.seed, setup.settings.max_test_steps)


def _needs_goal_reward(seating: Seating) -> bool:
    """Return whether a learner's memory replaces goals, and no function of the user's gives the rewards."""
    replays = (seated.learner.needs.replay for seated in seating.learners if seated.learner.needs is not None)
    parts = (None if replay is None else replay.hindsight for replay in replays)
    return any(part is not None and part.reward_fn is None for part in parts)


def _streams(previous: Run | None, envs: VectorEnv, seating: Seating, storage: Mapping[int, Storage]) -> Streams:
    """Return the streams of a previous run if the same agents hold the same seats, else new ones."""
    if previous is not None and not previous.context.streams.torn and same_memory(previous, envs.spec, envs.num_envs):
        before = previous.context
        pairs = zip(before.seating.agents, seating.agents, strict=True)
        if repr(before.storage) == repr(storage) and all(old is new for old, new in pairs):
            before.streams.release()
            return before.streams
    return Streams(envs.spec, envs.num_envs, storage)


def _schedulers(
    seating: Seating, streams: Streams, num_envs: int, defaults: Defaults, settings: TrainerSettings, stack: ExitStack
) -> tuple[list[UpdateScheduler], LearnerActors | None]:
    """Return the schedulers of the learners, and the actors that make their updates, None without any."""
    learners = [seated for seated in seating.updated if seated.learner.needs is not None and not seated.all_frozen]
    if settings.learners is not None:
        from marltrain.trainer.cluster.shard_agents import remote_schedulers  # loads Ray

        return remote_schedulers(learners, streams, num_envs, defaults, settings, stack)
    thread = stack.enter_context(learning_thread(settings.collect))
    schedulers: list[UpdateScheduler] = []
    for seated in learners:
        schedulers.append(_scheduler(seated, streams, num_envs, defaults, thread))
        stack.callback(schedulers[-1].close)  # runs also if the next learner is refused
    return schedulers, None


def _scheduler(
    seated: Seats, streams: Streams, num_envs: int, defaults: Defaults, thread: Executor | None
) -> UpdateScheduler:
    """Return the scheduler of a learner; with a thread, updates run in it while the loop collects."""
    if thread is not None:
        return AsyncScheduler(seated, streams, num_envs, defaults, thread)
    kind = UpdateScheduler if seated.learner.obstacle() is None else PlannedScheduler  # None: it never plans updates
    return kind(seated, streams, num_envs, defaults)


def _folder(
    setup: TrainerSetup, call: TrainCall, found: FoundCheckpoint | None, locked: RunFolder | None, stack: ExitStack
) -> RunFolder | None:
    """Return the run's folder, which `stack` releases, or None if no files are written."""
    if call.earlier is not None:
        known = call.earlier.context.folder
        folder = None if known is None else existing_folder(known.path)
    elif found is not None or setup.run_dir is False:
        folder = locked
    elif call.resume is None:
        path = setup.run_dir or setup.runs / default_name(setup.source.name)
        folder = new_folder(path, fresh=setup.run_dir is None)
        folder.own = frozenset()  # given back, unless the run begins; see `finish`
    else:
        folder = _without_checkpoint(call.resume, locked)
    if folder is not None:
        stack.callback(folder.release)
        if setup.checkpoint is not None:  # marks the run as resumable, however early it stops
            (folder.path / FOLDER).mkdir(exist_ok=True)
    return folder


def _job(setup: TrainerSetup, spec: EnvSpec, budgets: Budgets, stack: ExitStack) -> Job | None:
    """Return the connection of a named run, which `stack` closes."""
    if setup.settings.name is None:
        return None
    from marltrain.trainer.jobs.job import Job  # loads asyncio

    job = Job.of(setup.settings, spec, budgets)
    stack.callback(job.close)
    return job


def _without_checkpoint(resume: str | Path, locked: RunFolder | None) -> RunFolder:
    """Return the folder of a new run in place of one that has no checkpoint to resume from; warn about it."""
    if locked is not None and (locked.path / "last").exists() and not (locked.path / FOLDER).exists():
        locked.release()  # that run has ended without a checkpoint
        locked = None
    folder = new_folder(run_of(resume)) if locked is None else locked
    warn(f"{resume} holds no finished checkpoint: a new run starts, in {folder.path}")
    return folder
