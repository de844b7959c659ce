"""DecentralizedTrainer: arguments, `train` and `test`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np

from marltrain import config
from marltrain.envs import Source, VectorEnv, make_vector, resolve
from marltrain.envs.faults import MAX_RESTARTS, check_timeout, closed
from marltrain.errors import ConfigError
from marltrain.layout import Array
from marltrain.policies.agents.agent import Agent
from marltrain.policies.memory.streams import Plan, Streams
from marltrain.random import child_seed, fresh_seed
from marltrain.spec import EnvSpec
from marltrain.trainer.budgets import Budgets
from marltrain.trainer.callbacks import Callback, CallbackList, FunctionHooks, Periodic
from marltrain.trainer.claims import at_work
from marltrain.trainer.collecting.double_buffer import check_agents, check_places
from marltrain.trainer.context import RunContext
from marltrain.trainer.counters import Counters
from marltrain.trainer.evaluating.evaluation import Evaluation, TestResult
from marltrain.trainer.preflight import check_line_up, warn_of_early_end, warn_of_no_update
from marltrain.trainer.reporting.progress import Progress, ProgressPrinter, announced
from marltrain.trainer.reporting.run_config import record
from marltrain.trainer.run import Run
from marltrain.trainer.saving.checkpoint import FOLDER, FoundCheckpoint, begun, find, run_of, sole
from marltrain.trainer.saving.continuation import earlier_run, past_of, same_memory
from marltrain.trainer.saving.resume import call_of, check, check_frames, check_resumable, seed_of, threads, versions
from marltrain.trainer.saving.run_folder import RunFolder, checked, default_name, existing_folder, new_folder
from marltrain.trainer.seats import Seating, as_mask, check_learners
from marltrain.trainer.settings import (
    EPISODES,
    TEST_EPISODES,
    TEST_STEPS,
    RewardMetric,
    TeamReward,
    TestSettings,
    TrainerSettings,
    TrainSettings,
    check_team_reward,
    check_tests,
    try_team_reward,
)
from marltrain.trainer.updating.asynchronous import learning_thread
from marltrain.trainer.updating.pace import Defaults, check_pace, plans_for
from marltrain.trainer.updating.scheduler import UpdateScheduler


class DecentralizedTrainer:
    """Trains several agents at once in one environment, each with its own policy.

    env: "namespace/name", a class or a factory.  env_args: its keyword arguments.
    num_train_envs, num_test_envs: number of parallel environments for training and for tests.
    batch_size, update_freq: rows of a batch, and env steps between updates, for learners that set none of their own.
    test_freq, test_freq_steps: episodes and env steps between tests. If both are given, a test is played at the
    multiples of each; if only test_freq_steps is given, at its multiples only. test_freq=None alone: no tests.
    max_test_steps: env steps after which a test is cut; episodes running then count with their return so far.
    episodes_per_train, steps_per_train, updates_per_train: budgets; the first one reached ends training.
    train_fn(episodes, steps), test_fn(episodes, steps): called at the start of training (of a test), and whenever the
    number of finished episodes passes a multiple of the number of environments.
    save_best_fn(episode): called after a test whose metric is the best so far.  save_last_fn(): called at the end.
    stop_fn(metric, episode) -> bool: called after every test; True ends training.
    reward_metric(rewards [episodes, players]) -> float; by default the mean over the players that learn at that test.
    shared_memory: a learner also learns from the transitions of other seats with the same spaces (off-policy only).
    team_reward: None, "mean", "sum" or f(rewards [P]): one reward for all players, used in learning only.
    collect: "serial": collect, then learn.  "overlap": learn in a thread while the next env steps are collected, which
    uses a second core. Agents then act with the weights of one update before; PPO's ratio uses the probabilities of
    these weights.
    vector, num_workers: "dummy" (this process) or "subproc" (worker processes), and the number of workers.
    double_buffer: step the environments in two halves in turn, so that one half steps while agents act for the other
    (subproc only). Results do not change.
    on_fault: reaction to a Python environment that raises, breaks its contract or hangs, or whose worker process ends.
    "raise": an error.  "restart": its running episode is dropped, and a new one begins.  None: an error if the
    environment's code fails before its first finished episode, else a restart.
    max_env_restarts: maximum number of survived faults within 10,000 env steps.
    env_timeout: seconds that a worker may take for one env step of its environments (subproc only).
    progress: True shows a bar in a terminal and lines in other outputs; a `ProgressPrinter` sets the interval of lines.
    callbacks: `Callback` objects, called in the given order.
    run_dir: folder for tables, plot and agents; runs/<name>-<time> by default. False: no files are written.

    Raises ConfigError for a wrong argument, before an environment is built.
    """

    @config.checked_arguments
    def __init__(
        self,
        env: Any,
        env_args: Mapping[str, Any] | None = None,
        num_train_envs: int = 16,
        num_test_envs: int = 16,
        batch_size: int = 64,
        update_freq: int = 100,
        test_freq: int | None = TEST_EPISODES,
        episodes_per_train: int = EPISODES,
        episodes_per_test: int = 50,
        train_fn: Callable[[int, int], Any] | None = None,
        test_fn: Callable[[int, int], Any] | None = None,
        save_best_fn: Callable[[int], Any] | None = None,
        save_last_fn: Callable[[], Any] | None = None,
        stop_fn: Callable[[float, int], bool] | None = None,
        reward_metric: RewardMetric = None,
        shared_memory: bool = False,
        *,
        vector: str = "dummy",
        num_workers: int | None = None,
        seed: int | None = None,
        steps_per_train: int | None = None,
        updates_per_train: int | None = None,
        team_reward: TeamReward = None,
        callbacks: Iterable[Callback] = (),
        run_dir: str | Path | Literal[False] | None = None,
        progress: bool | ProgressPrinter = True,
        on_fault: str | None = None,
        max_env_restarts: int = MAX_RESTARTS,
        env_timeout: float | None = None,
        collect: str = "serial",
        double_buffer: bool = False,
        test_freq_steps: int | None = None,
        max_test_steps: int | None = TEST_STEPS,
    ) -> None:
        """Check every argument; no environment is built yet."""
        self.settings = TrainerSettings(
            num_train_envs=num_train_envs, num_test_envs=num_test_envs, batch_size=batch_size, update_freq=update_freq,
            test_freq=test_freq, episodes_per_train=episodes_per_train, episodes_per_test=episodes_per_test,
            shared_memory=shared_memory, vector=vector, num_workers=num_workers, seed=seed,
            steps_per_train=steps_per_train, updates_per_train=updates_per_train,
            progress=True if isinstance(progress, ProgressPrinter) else progress,
            on_fault=on_fault, max_env_restarts=max_env_restarts, env_timeout=env_timeout, collect=collect,
            double_buffer=double_buffer, test_freq_steps=test_freq_steps, max_test_steps=max_test_steps,
        )  # fmt: skip
        config.validate(self.settings, "DecentralizedTrainer")
        check_places(self.settings)
        check_tests(self.settings, save_best_fn=save_best_fn, stop_fn=stop_fn)
        check_team_reward(team_reward)
        if reward_metric is not None:
            config.check_function("reward_metric", reward_metric, "rewards")
        self.source: Source = resolve(env, env_args)
        check_timeout(self.settings.env_timeout, vector=vector, native=self.source.game is not None)
        self.seed = fresh_seed() if self.settings.seed is None else self.settings.seed
        self.reward_metric, self.team_reward = reward_metric, team_reward
        self.printer = progress if isinstance(progress, ProgressPrinter) else None
        self.hooks = FunctionHooks(
            Periodic("train_fn", train_fn, self.settings.num_train_envs),
            Periodic("test_fn", test_fn, self.settings.num_test_envs),
            save_best_fn, save_last_fn, stop_fn,
        )  # fmt: skip
        self.callbacks = CallbackList(callbacks).callbacks
        self.checkpoint = sole(self.callbacks)
        self.run_dir = checked(run_dir)
        if self.run_dir is False and self.checkpoint is not None:
            raise ConfigError("run_dir=False writes nothing, but callbacks hold a Checkpoint: leave one of them out")
        self._runs = Path("runs").absolute()  # an environment may change the working folder
        self.stop_reason = ""
        self.run: Run | None = None
        self.trained = 0  # number of `train` calls so far; each plays episodes of its own seeds
        self._streams: Streams | None = None
        self._streams_of: tuple[tuple[Agent, ...], str] | None = None

    @config.checked_arguments
    def train(
        self,
        agents: Sequence[Agent],
        learning_mask: Sequence[Any] | Array,
        exploration_mask: Sequence[Any] | Array | None = None,
        plot: bool = True,
        *,
        test_agents: Sequence[Agent] | None = None,
        resume: str | Path | None = None,
        any_threads: bool = False,
        go_on: bool | DecentralizedTrainer = False,
    ) -> dict[str, Any]:
        """Train the agents; return the counts, metrics and tables of the run.

        agents: one agent per player, in the players' order; one object may hold several seats.
        learning_mask, exploration_mask: one truth value per seat; exploration_mask=None: all explore.
        plot: draw metrics.png at the end.
        test_agents: the line-up that plays the tests; it rotates by one seat per episode.
        resume: folder of a run: continues from its newest checkpoint (see `Checkpoint`), or from a given one
        (runs/x/checkpoints/12000), with the same arguments. Budgets count from the start of the run. If the folder has
        no checkpoint, a new run starts, with a warning.
        any_threads: allow another number of threads on resume, which changes sums in their last bits.
        go_on: True: continue the run of the previous call. Counters, schedules, tables, folder, the comparison of tests
        and the state of callbacks continue; budgets are added; the result covers the whole run. Agents, masks and
        test_agents may differ. New episodes begin, on seeds not used before; an unfinished rollout is dropped. If
        another trainer is given, the run of its last call continues; the environment may differ, its players may not.

        Returns a mapping with `reward_metric_stats` (one metric per test), `num_collected_steps` (env steps),
        `num_collected_episodes`, `num_gradient_steps`, `num_updates`, `training_time` (seconds, including tests),
        `stop_reason`, `run_dir`, `history` and `episodes` (pandas). `faults` (pandas) and `num_faults` report faults of
        environments, `num_dropped_steps` the env steps of episodes dropped because of them.
        Ctrl-C and SIGTERM end training after the current step, save and return the result so far; a second one exits
        at once. An exception is raised again after the last agents are saved.
        Raises AgentError, MaskError or ConfigError before training starts, SaveError for a damaged checkpoint.
        """
        asked = TrainSettings(plot=plot, any_threads=any_threads)
        config.validate(asked, "DecentralizedTrainer.train")
        run, found, learning, exploring = self._prepare(
            agents, learning_mask, exploration_mask, test_agents, resume, asked.any_threads, go_on
        )
        self.run = run
        with run.interrupts, announced(self.settings.progress):
            try:
                if found is None:
                    run.start(learning, exploring)
                else:
                    run.resume(found)
                while not run.over():
                    run.collect()
                    run.learn()
                    run.test_if_due()
                    run.checkpoint_if_due()
                run.last_checkpoint()
                run.last_test()
            except KeyboardInterrupt:
                run.reason = "interrupted"
                if run.interrupts.leaving:
                    raise
            except BaseException as error:
                run.reason = f"{type(error).__name__}"
                raise
            finally:
                run.finish(asked.plot)
        if self.settings.steps_per_train is None:
            warn_of_no_update(run.parts.seating.units, learning, run.counters.updates, run.reason)
        return run.result()

    @config.checked_arguments
    def test(self, agents: Sequence[Agent], episodes: int | None = None) -> TestResult:
        """Play a test with these agents in these seats, without rotation or learning; return its `TestResult`.

        episodes: number of episodes; `episodes_per_test` by default.
        """
        asked = TestSettings(episodes=episodes)
        config.validate(asked, "DecentralizedTrainer.test")
        episodes = self.settings.episodes_per_test if asked.episodes is None else asked.episodes
        at = at_work(self, agents, training=False)
        num_envs = min(self.settings.num_test_envs, episodes)
        with at, announced(self.settings.progress), closed(self._vector(num_envs, "test"), self.source.name) as envs:
            seating = Seating(envs.spec, agents, self.seed, stack=False)
            return Evaluation(envs, self.seed, self.settings.max_test_steps).play(seating.units, episodes, caller=5)

    def stop(self, reason: str) -> None:
        """End training after the current batch step; the first reason given becomes `stop_reason` of the result."""
        self.stop_reason = self.stop_reason or reason

    def log(self, name: str, value: float) -> None:
        """Log a custom number from a hook, while training runs; see `Moment.log`."""
        if self.run is None or self.run.finished:
            raise ConfigError("log: numbers can be logged only while training runs, before on_train_end")
        self.run.scalars.log(name, value)

    def __repr__(self) -> str:
        """Return the environment, the seed and the budgets, in one line."""
        settings = self.settings
        told = {
            "seed": self.seed, "num_train_envs": settings.num_train_envs, "steps_per_train": settings.steps_per_train,
            "episodes_per_train": settings.episode_budget,
        }  # fmt: skip
        given = [f"{name}={value!r}" for name, value in told.items() if value is not None]
        return f"{type(self).__name__}({self.source.name!r}, {', '.join(given)})"

    @property
    def folder(self) -> Path:
        """Folder of the current or last run; raises ConfigError without a run or with run_dir=False."""
        if self.run is None:
            raise ConfigError("no run has begun: its folder is made by train()")
        if self.run.parts.folder is None:
            raise ConfigError("the run has no folder, since the trainer was given run_dir=False")
        return self.run.parts.folder.path

    @property
    def learning_mask(self) -> tuple[bool, ...]:
        """Seats that learn. A hook may set it: it is checked at once and takes effect at the next batch step."""
        return tuple(bool(value) for value in self._running("learning_mask").masks()[0])

    @learning_mask.setter
    def learning_mask(self, values: Sequence[Any] | Array) -> None:
        run = self._running("learning_mask")
        mask = as_mask(values, run.parts.envs.spec, "learning_mask", some=True)
        check_learners(run.parts.envs.spec, run.parts.seating.agents, mask)
        run.set_masks(learning=mask)

    @property
    def exploration_mask(self) -> tuple[bool, ...]:
        """Seats that explore. A hook may set it: it is checked at once and takes effect at the next batch step."""
        return tuple(bool(value) for value in self._running("exploration_mask").masks()[1])

    @exploration_mask.setter
    def exploration_mask(self, values: Sequence[Any] | Array) -> None:
        run = self._running("exploration_mask")
        run.set_masks(exploring=as_mask(values, run.parts.envs.spec, "exploration_mask", some=False))

    def save(self, folder: Path, agents: Sequence[Agent]) -> None:
        """Save agents to a folder."""
        from marltrain.policies.agents.saving import save

        save(folder, list(agents), players=None if self.run is None else self.run.parts.envs.spec.names)

    def _running(self, what: str) -> Run:
        if self.run is None or self.run.finished:
            raise ConfigError(f"{what} is given to train(); it can be set here only while training runs")
        return self.run

    def _found(self, resume: str | Path | None, stack: ExitStack) -> tuple[FoundCheckpoint | None, RunFolder | None]:
        """Lock the folder of the resumed run, read its checkpoint and adopt its seed.

        Returns the checkpoint and the folder; each is None if there is none.
        """
        if resume is None:
            return None, None
        if self.run_dir is False:
            raise ConfigError("run_dir=False writes nothing, and resume goes on in a folder: leave one of them out")
        try:
            run_dir = run_of(resume)
            folder = existing_folder(run_dir) if begun(run_dir) else None
            if folder is not None:
                stack.callback(folder.release)
            found = find(resume)
        except OSError as error:
            raise ConfigError(f"resume={str(resume)!r} cannot be read: {error.strerror}") from error
        if self.run_dir is not None and self.run_dir.resolve() != run_dir.resolve():
            raise ConfigError(f"run_dir is {str(self.run_dir)!r}, and resume goes on in {str(resume)!r}: leave one out")
        if found is not None:
            self.seed = seed_of(found, self.settings.seed)
        return found, folder

    def _folder(
        self, resume: str | Path | None, found: FoundCheckpoint | None, locked: RunFolder | None
    ) -> RunFolder | None:
        """Return the run's folder: the one already locked, a new one, or None."""
        if found is not None or self.run_dir is False:
            return locked
        if resume is None:
            fresh = self.run_dir is None
            return new_folder(self.run_dir or self._runs / default_name(self.source.name), fresh=fresh)
        if locked is not None and (locked.path / "last").exists() and not (locked.path / FOLDER).exists():
            locked.release()  # that run has ended without a checkpoint
            locked = None
        folder = new_folder(run_of(resume)) if locked is None else locked
        warnings.warn(f"{resume} holds no finished checkpoint: the run starts anew, in {folder.path}", stacklevel=5)
        return folder

    def _vector(self, num_envs: int, role: str) -> VectorEnv:
        workers = self.settings.num_workers
        return make_vector(
            self.source, None, num_envs, vector=self.settings.vector, role=role,
            recording=role == "train" and self.checkpoint is not None,
            num_workers=None if workers is None else min(workers, num_envs), on_fault=self.settings.on_fault,
            max_env_restarts=self.settings.max_env_restarts, env_timeout=self.settings.env_timeout,
        )  # fmt: skip

    def _prepare(
        self,
        agents: Sequence[Agent],
        learning_mask: Sequence[Any] | Array,
        exploration_mask: Sequence[Any] | Array | None,
        test_agents: Sequence[Agent] | None,
        resume: str | Path | None,
        any_threads: bool,
        go_on: bool | DecentralizedTrainer,
    ) -> tuple[Run, FoundCheckpoint | None, Array, Array]:
        """Build and check all parts of a run; environments are closed again if a check fails."""
        settings = self.settings
        with ExitStack() as stack:
            stack.enter_context(at_work(self, agents, training=True))
            stack.enter_context(at_work(None, test_agents, training=False))
            self.stop_reason = ""
            earlier, past = earlier_run(self, go_on, resume), None
            found, locked = self._found(resume, stack)
            envs = stack.enter_context(closed(self._vector(settings.num_train_envs, "train"), self.source.name))
            spec = envs.spec
            try_team_reward(self.team_reward, len(spec.players))
            learning = as_mask(learning_mask, spec, "learning_mask", some=True)
            exploring = as_mask(
                np.ones(len(spec.players)) if exploration_mask is None else exploration_mask, spec,
                "exploration_mask", some=False,
            )  # fmt: skip
            seating = Seating(spec, agents, self.seed, stack=True)
            for unit in seating.units:
                stack.callback(unit.learner.close)
            check_learners(spec, agents, learning)
            if settings.double_buffer:
                check_agents(seating.units)
            line_up = seating
            if test_agents is not None:
                line_up = Seating(spec, test_agents, self.seed, stack=False, what="test_agents")
                check_line_up(agents, test_agents)
            if earlier is not None:
                own = earlier.trainer is self
                past = past_of(
                    earlier, spec, line_up.agents, rotate=test_agents is not None, learning=learning, same=own
                )
                if not own and same_memory(earlier, spec, envs.num_envs):
                    self._streams, self._streams_of = earlier.trainer._streams, earlier.trainer._streams_of
            told = self._told(spec, agents, test_agents, (learning, exploring))
            if found is not None:
                check(found, told, any_threads=any_threads)
                self._streams = None  # the checkpoint holds its own
            defaults = Defaults(settings.batch_size, settings.update_freq, settings.shared_memory)
            for unit in seating.units:
                check_pace(unit, spec, envs.num_envs, defaults)
            warn_of_early_end(
                seating.units, learning, envs.num_envs, defaults, settings.steps_per_train, begun=past is not None
            )
            evaluation = self._evaluation(stack) if settings.tests else None
            plans = plans_for(seating.units, spec, envs.num_envs, defaults)
            streams = self._streams_for(spec, seating, plans, envs.num_envs)
            learners = [unit for unit in seating.units if unit.learner.needs is not None and not unit.frozen.all()]
            thread = stack.enter_context(learning_thread(settings.collect))
            schedulers = []
            for unit in learners:
                stack.callback(unit.learner.act_directly)  # runs also if the next learner is refused
                schedulers.append(UpdateScheduler(unit, streams, envs.num_envs, defaults, thread))
                if past is not None:
                    schedulers[-1].follow(past.counters.updates, past.schedulers)
            env_seed = self.seed if self.trained == 0 else child_seed(self.seed, "train", self.trained)
            if earlier is None:
                folder = self._folder(resume, found, locked)
            else:
                folder = None if earlier.parts.folder is None else existing_folder(earlier.parts.folder.path)
            if folder is not None:
                stack.callback(folder.release)
                if self.checkpoint is not None:  # marks the run as resumable, however early it stops
                    (folder.path / FOLDER).mkdir(exist_ok=True)
                record(folder.path, self, spec, agents, (learning, exploring))
            self.trained += 1
            budgets = Budgets.of(settings, Counters() if past is None else past.counters)
            parts = RunContext(
                envs, evaluation, seating, line_up, test_agents is not None, streams, schedulers,
                folder, env_seed, budgets, self.hooks,
                CallbackList([*self._watchers(folder, budgets), *self.callbacks]),
                self.checkpoint, told, stack.pop_all(), past,
            )  # fmt: skip
            if earlier is not None:
                earlier.followed = True
        return Run(self, parts), found, learning, exploring

    def _evaluation(self, stack: ExitStack) -> Evaluation:
        """Return the Evaluation that plays the tests, in environments of its own, which `stack` closes."""
        settings = self.settings
        num_envs = min(settings.num_test_envs, settings.episodes_per_test)
        envs = stack.enter_context(closed(self._vector(num_envs, "test"), self.source.name))
        return Evaluation(envs, self.seed, settings.max_test_steps)

    def _told(
        self,
        spec: EnvSpec,
        agents: Sequence[Agent],
        test_agents: Sequence[Agent] | None,
        masks: tuple[Array, Array],
    ) -> dict[str, Any]:
        """Return the facts of the run for the manifest of its checkpoints.

        Raises AgentError for agents that a checkpoint cannot hold, and ConfigError for frame stacks without memory.
        """
        if self.checkpoint is not None:
            check_resumable([*agents, *(test_agents or ())])
            check_frames(spec, memory=self.checkpoint.settings.memory)
        return {
            "seed": self.seed, "call": call_of(self, spec, agents, test_agents, masks), "versions": versions(),
            "threads": threads(agents), "reproducible": spec.reproducible,
        }  # fmt: skip

    def _streams_for(self, spec: EnvSpec, seating: Seating, plans: Mapping[int, Plan], num_envs: int) -> Streams:
        """Return the streams of the last `train` call if the same agents hold the same seats, else new ones."""
        who = tuple(seating.agents), repr(plans)  # agents, not ids: an id may be reused after its object is deleted
        known = self._streams_of is not None and _same(self._streams_of, who)
        if self._streams is None or self._streams.torn or not known:
            self._streams, self._streams_of = Streams(spec, num_envs, plans), who
        return self._streams

    def _watchers(self, folder: RunFolder | None, budgets: Budgets) -> list[Callback]:
        """Return the built-in callbacks: TensorBoard files if the run has a folder, and the progress display."""
        from marltrain.trainer.reporting.tensorboard import TensorBoard

        watchers: list[Callback] = [] if folder is None else [TensorBoard(folder.path)]
        if self.settings.progress:
            watchers.append(Progress(budgets, self.printer))
        return watchers


def _same(before: tuple[tuple[Agent, ...], str], now: tuple[tuple[Agent, ...], str]) -> bool:
    """Return whether identical agent objects hold the same seats, with the same plans."""
    return before[1] == now[1] and all(old is new for old, new in zip(before[0], now[0], strict=True))
