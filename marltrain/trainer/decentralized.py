"""DecentralizedTrainer: arguments, `train` and `test`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from marltrain.core.errors import ConfigError, shown
from marltrain.core.seeds import fresh_seed
from marltrain.core.settings import check_function, checked_arguments, validate
from marltrain.envs import resolve
from marltrain.envs.faults import MAX_RESTARTS
from marltrain.envs.make import record_names
from marltrain.envs.vector import check_timeout
from marltrain.policies.agents.matches import Matches
from marltrain.processes.ray_actors import ANSWER
from marltrain.trainer.evaluating.evaluation import TestResult
from marltrain.trainer.events.callbacks import Callback, CallbackList
from marltrain.trainer.events.hooks import FunctionHooks, Periodic
from marltrain.trainer.preparing.continuation import check_finished, take_over
from marltrain.trainer.preparing.preflight import warn_of_no_update
from marltrain.trainer.preparing.prepare import TrainCall, prepare
from marltrain.trainer.reporting.dashboard import DASHBOARD, Display
from marltrain.trainer.reporting.progress import ProgressPrinter, announced
from marltrain.trainer.saving.checkpoint import sole
from marltrain.trainer.saving.run_folder import checked
from marltrain.trainer.seats.by_player import Agents, without_seats
from marltrain.trainer.seats.in_use import at_work
from marltrain.trainer.seats.masks import Mask, as_exploration_mask, as_learning_mask
from marltrain.trainer.seats.team_reward import TeamReward, check_team_reward
from marltrain.trainer.settings import (
    BATCH_SIZE,
    EPISODES,
    TEST_EPISODES,
    TEST_STEPS,
    UPDATE_FREQ,
    RewardMetric,
    TestSettings,
    TrainerSettings,
    TrainSettings,
    check_ray,
    check_tests,
)
from marltrain.trainer.training.context import TrainerSetup
from marltrain.trainer.training.interrupted import end_interrupted
from marltrain.trainer.training.loop import train
from marltrain.trainer.training.result import TrainResult
from marltrain.trainer.training.run import Run
from marltrain.trainer.training.testing import play_agents

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class DecentralizedTrainer:
    """Trains several agents at once in one environment, each with its own policy.

    env: "namespace/name", a class or a factory.  env_args: its keyword arguments.
    num_train_envs, num_test_envs: number of parallel environments for training and for tests.
    batch_size, update_freq: rows of a batch, and env steps between updates, for learners that set none of their own;
    where they are not given, defaults of the learners' algorithms come first (update_freq=2048 of PPO).
    test_freq, test_freq_steps: episodes and env steps between tests. If both are given, a test is played at the
    multiples of each; if only test_freq_steps is given, at its multiples only. test_freq=None alone: no tests.
    max_test_steps: env steps after which a test is cut; episodes running then count with their return so far.
    sampled_tests: play each test a second time with agents that explore, see `test`: the table of tests then has
    `sampled/metric` and `sampled/return/<player>`. Metric, best agents and `stop_fn` stay those of greedy play.
    episodes_per_train, steps_per_train, updates_per_train: budgets; the first one reached ends training.
    train_fn(episodes, steps), test_fn(episodes, steps): called at the start of training (of a test), and whenever the
    number of finished episodes passes a multiple of the number of environments.
    save_best_fn(episode): called after a test whose metric is the best so far.  save_last_fn(): called at the end.
    stop_fn(metric, episode) -> bool: called after every test; True ends training.
    reward_metric(rewards [episodes, players]) -> float: by default the mean over the players that learn at that test.
    shared_memory: a learner also learns from the transitions of other seats with the same spaces (off-policy only).
    team_reward: None, "mean", "sum" or f(rewards [P]): one reward for all players; or {team: [players]}, names or
      patterns: the mean of the team's rewards for each of its players. Used in learning only.
    collect: "serial": collect, then learn.  "overlap": learn in a thread while the next env steps are collected, which
    uses a second core. Agents then act with the weights of one update before; PPO's ratio uses the probabilities of
    these weights.
    vector, num_workers: "dummy" (this process), "subproc" (worker processes) or "ray" (actors of a Ray cluster), and
    the number of workers or actors.
    on_fault: reaction to a Python environment that raises, breaks its contract or hangs, or whose worker process ends.
    "raise": an error.  "restart": its running episode is dropped, and a new one begins.  None: an error if the
    environment's code fails before its first finished episode, else a restart.
    max_env_restarts: maximum number of survived faults within 10,000 env steps.
    env_timeout: seconds that a worker may take for one env step of its environments (subproc and ray only).
    record: attributes of the environment (fields of a native game) at the end of episodes: those of tests are in
    `TestResult.records`, and in the table of tests as means of numbers and shares of texts; those of training episodes
    are in the table of episodes.
    runners: number of Ray actors that hold the training environments, act in them with weights sent to them, and send
    the steps until the next update at once. Results equal those without. Agents learn and are tested in this process.
    min_runners: number of runners with which the run goes on if others are lost; the others take their environments
    over, and new runners join once they have started. None: a lost runner is replaced before the run goes on.
    sync, max_lag: runners wait for each update. With sync=False they work ahead, with weights at most `max_lag` updates
    old (1 by default); results then depend on max_lag, but not on the number of runners or their speed.
    learners: number of Ray actors that make the updates; the agents are split over them, and a team stays whole.
    Results equal those without. Memory, acting and tests stay in this process.
    learner_resources: what each learner actor occupies, such as {"num_gpus": 1}; None: one CPU must be free, and none
    is kept.
    resources: what each other Ray actor occupies, such as {"num_cpus": 1, "fast_disk": 1}; None: one CPU must be free,
    and none is kept.
    address: the Ray cluster: "host:port", "auto" (one that runs on this machine) or "local" (a new one, ended with the
    run); None: the variable RAY_ADDRESS, else "local".
    timeout: seconds that a Ray actor may take to answer; of environments, `env_timeout` if it is given.
    name: name of the run, by which other processes attach to it while it goes on (`mt.attach`); needs Ray.
    progress: True shows a bar in a terminal and lines in other outputs; a `ProgressPrinter` sets the interval of lines;
    "dashboard" shows curves, returns and losses in a terminal or notebook, and lines in other outputs.
    callbacks: `Callback` objects, called in the given order.
    run_dir: folder for tables, plot and agents; runs/<name>-<time> by default. False: no files are written.

    Raises ConfigError for a wrong argument, before an environment is built.
    """

    @checked_arguments
    def __init__(
        self,
        env: Any,
        env_args: Mapping[str, Any] | None = None,
        num_train_envs: int = 16,
        num_test_envs: int = 16,
        batch_size: int = BATCH_SIZE,
        update_freq: int = UPDATE_FREQ,
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
        progress: bool | ProgressPrinter | Literal["dashboard"] = True,
        on_fault: str | None = None,
        max_env_restarts: int = MAX_RESTARTS,
        env_timeout: float | None = None,
        collect: str = "serial",
        test_freq_steps: int | None = None,
        max_test_steps: int | None = TEST_STEPS,
        sampled_tests: bool = False,
        record: Sequence[str] = (),
        resources: Mapping[str, float] | None = None,
        address: str | None = None,
        timeout: float = ANSWER,
        runners: int | None = None,
        min_runners: int | None = None,
        name: str | None = None,
        learners: int | None = None,
        learner_resources: Mapping[str, float] | None = None,
        sync: bool = True,
        max_lag: int | None = None,
    ) -> None:
        """Check every argument; no environment is built yet."""
        display: Display = progress if isinstance(progress, ProgressPrinter) or progress == DASHBOARD else None
        settings = TrainerSettings(
            num_train_envs=num_train_envs, num_test_envs=num_test_envs, batch_size=batch_size, update_freq=update_freq,
            test_freq=test_freq, episodes_per_train=episodes_per_train, episodes_per_test=episodes_per_test,
            shared_memory=shared_memory, vector=vector, num_workers=num_workers, seed=seed,
            steps_per_train=steps_per_train, updates_per_train=updates_per_train,
            progress=display is not None or progress,  # type: ignore[arg-type]
            on_fault=on_fault, max_env_restarts=max_env_restarts, env_timeout=env_timeout, collect=collect,
            test_freq_steps=test_freq_steps, max_test_steps=max_test_steps, sampled_tests=sampled_tests,
            record=record_names(record),
            resources=resources, address=address, timeout=timeout, runners=runners, min_runners=min_runners, name=name,
            learners=learners, learner_resources=learner_resources,
            sync=sync, max_lag=max_lag,
        )  # fmt: skip
        validate(settings, "DecentralizedTrainer")
        check_ray(settings)
        check_tests(settings, save_best_fn=save_best_fn, stop_fn=stop_fn)
        check_team_reward(team_reward)
        if reward_metric is not None:
            check_function("reward_metric", reward_metric, "rewards")
        source = resolve(env, env_args)
        check_timeout(settings.env_timeout, vector=vector, native=source.game is not None)
        hooks = FunctionHooks(
            Periodic("train_fn", train_fn, settings.num_train_envs),
            Periodic("test_fn", test_fn, settings.num_test_envs),
            save_best_fn, save_last_fn, stop_fn,
        )  # fmt: skip
        all_callbacks = CallbackList(callbacks).callbacks
        checkpoint, folder = sole(all_callbacks), checked(run_dir)
        if folder is False and checkpoint is not None:
            raise ConfigError("run_dir=False writes nothing, but callbacks hold a Checkpoint: leave one of them out")
        self.setup = TrainerSetup(
            source, settings, fresh_seed() if settings.seed is None else settings.seed, reward_metric, team_reward,
            hooks, all_callbacks, checkpoint, folder,
            runs=Path("runs").absolute(),  # an environment may change the working folder
            display=display, only_checkpoints=False,
        )  # fmt: skip
        self.run: Run | None = None

    @checked_arguments
    def train(
        self,
        agents: Agents | Matches,
        learning_mask: Mask | None = None,
        exploration_mask: Mask | None = None,
        plot: bool = True,
        *,
        rotate: bool = False,
        test_agents: Agents | None = None,
        rotate_tests: bool = True,
        resume: str | Path | None = None,
        any_threads: bool = False,
        go_on: bool | DecentralizedTrainer = False,
        on_interrupt: str = "return",
    ) -> dict[str, Any]:
        """Train the agents; return the counts, metrics and tables of the run.

        agents: one agent per player, in the players' order, or agents by player's name or shell pattern
        ({"wolf": a, "hare_*": b}), of which exactly one must match each player; one object may hold several seats.
        Or an `mt.League`, whose matches divide the environments.
        learning_mask, exploration_mask: one truth value per seat, or truth values by name or pattern, None: all seats
        whose agents can learn, and all seats. In a mapping that holds True only, seats left out are False; in one that
        holds False only, they are as with None.
        plot: draw metrics.png at the end.
        rotate: the agents move on by one seat after each episode, among seats of equal spaces, in training and in
        tests. Masks, rewards and columns of tables are then by entry of `agents`, named by the player whose seat the
        entry has first. An agent learns from its own decisions in all its seats.
        test_agents: the line-up that plays the tests, given as `agents`; it moves on by one seat per episode, among
        seats of equal spaces. rotate_tests=False: every agent of it stays in its seat, as teams need it.
        resume: folder of a run: continues from its newest checkpoint (see `Checkpoint`), or from a given one
        (runs/x/checkpoints/12000), with the same arguments. Budgets count from the start of the run. If the folder has
        no checkpoint, a new run starts, with a warning.
        any_threads: allow another number of threads on resume, which changes sums in their last bits.
        go_on: True: continue the run of the previous call. Counters, schedules, tables, folder, the comparison of tests
        and the state of callbacks continue; budgets are added; the result covers the whole run. Agents, masks and
        test_agents may differ. New episodes begin, on seeds not used before; an unfinished rollout is dropped. If
        another trainer is given, the run of its last call continues; the environment may differ, its players may not.
        on_interrupt: what follows Ctrl-C or SIGTERM, once the run is saved. "return": the result so far. "raise": a
        KeyboardInterrupt, which also ends the caller's loop over seeds.

        Returns a mapping with `reward_metric_stats` (one metric per test), `num_collected_steps` (env steps),
        `num_collected_episodes`, `num_gradient_steps`, `num_updates`, `training_time` (seconds, including tests),
        `stop_reason`, `run_dir`, `history` and `episodes` (pandas). `faults` (pandas) and `num_faults` report faults of
        environments, `num_dropped_steps` the env steps of episodes dropped because of them. `bytes_to_runners` and
        `bytes_from_runners` count what this call sent to runners and received from them, `bytes_to_learners` and
        `bytes_from_learners` what it sent to learner actors and received from them; `max_lag` is the
        largest lag of asynchronous runners, `fewest_runners` the smallest number of runners that collected.
        Ctrl-C and SIGTERM end training after the current step, save and print how to resume the run; a second one
        exits at once. An exception is raised again after the last agents are saved.
        Raises AgentError, MaskError or ConfigError before training starts, SaveError for a damaged checkpoint.
        """
        asked = TrainSettings(
            plot=plot, any_threads=any_threads, rotate=rotate, rotate_tests=rotate_tests, on_interrupt=on_interrupt
        )
        validate(asked, "DecentralizedTrainer.train")
        with ExitStack() as stack:
            stack.enter_context(at_work(self, without_seats(agents), training=True))
            stack.enter_context(at_work(None, without_seats(test_agents), training=False))
            earlier, setup = self._earlier(go_on, resume), self.setup
            if earlier is not None and earlier is not self.run:
                setup = take_over(setup, earlier)
            call = TrainCall(
                agents, learning_mask, exploration_mask, asked.rotate, test_agents, asked.rotate_tests, resume,
                asked.any_threads, self.run, earlier,
            )  # fmt: skip
            context, found = prepare(setup, call, stack)
            self.setup, self.run = replace(setup, seed=context.seed), Run(self, context, stack)
        if earlier is not None:
            earlier.continued = True
        with announced(self.settings.progress):
            train(self.run, found, plot=asked.plot)
        end_interrupted(self.run, asked.on_interrupt)
        if self.settings.steps_per_train is None:
            learners, counters = context.seating.learners, self.run.counters
            warn_of_no_update(learners, context.learning, counters.updates, self.run.reason)
        return TrainResult.of(self.run)

    @checked_arguments
    def test(self, agents: Agents, episodes: int | None = None, sampled: bool = False) -> TestResult:
        """Play a test with these agents in these seats, without rotation or learning; return its `TestResult`.

        agents: as for `train`.
        episodes: number of episodes; `episodes_per_test` by default.
        sampled: agents act as they explore in training: stochastic policies sample their actions, and value-based
        agents explore by their rule with its present numbers, such as `hyper.epsilon`. False: without exploration.
        Frozen agents never explore. Random numbers are equal in every test, and are not those of training.
        """
        asked = TestSettings(episodes=episodes, sampled=sampled)
        validate(asked, "DecentralizedTrainer.test")
        with at_work(self, without_seats(agents), training=False), announced(self.settings.progress):
            return play_agents(self.setup, agents, asked)

    def stop(self, reason: str) -> None:
        """End training after the current collector call and its updates.

        reason: `stop_reason` of the result; the first reason given counts.
        """
        if self.run is not None:
            self.run.stop(reason)

    def log(self, name: str, value: float) -> None:
        """Log a custom number from a hook, while training runs; see `Moment.log`."""
        if self.run is None or self.run.finished:
            raise ConfigError("log: numbers can be logged only while training runs, before on_train_end")
        self.run.scalars.log(name, value)

    def log_picture(self, name: str, figure: Figure) -> None:
        """Log a picture from a hook, while training runs; see `Moment.log_picture`."""
        if self.run is None or self.run.finished:
            raise ConfigError("log_picture: pictures can be logged only while training runs, before on_train_end")
        self.run.scalars.log_picture(name, figure)

    def __repr__(self) -> str:
        """Return the environment, the seed and the budgets, in one line."""
        settings = self.settings
        arguments = {
            "seed": self.seed, "num_train_envs": settings.num_train_envs, "steps_per_train": settings.steps_per_train,
            "episodes_per_train": settings.episode_budget,
        }  # fmt: skip
        given = [f"{name}={value!r}" for name, value in arguments.items() if value is not None]
        return f"{type(self).__name__}({self.setup.source.name!r}, {', '.join(given)})"

    @property
    def settings(self) -> TrainerSettings:
        """Settings of the trainer."""
        return self.setup.settings

    @property
    def seed(self) -> int:
        """Seed of the runs; a resumed run has the seed of its checkpoint."""
        return self.setup.seed

    @property
    def folder(self) -> Path:
        """Folder of the current or last run; raises ConfigError without a run or with run_dir=False."""
        if self.run is None:
            raise ConfigError("there is no run yet: train() creates its folder")
        if self.run.context.folder is None:
            raise ConfigError("the run has no folder, since the trainer was given run_dir=False")
        return self.run.context.folder.path

    @property
    def learning_mask(self) -> tuple[bool, ...]:
        """Seats that learn. A hook may set it: it is checked at once and takes effect at the next batch step."""
        return tuple(bool(value) for value in self._running("learning_mask").masks.wanted[0])

    @learning_mask.setter
    def learning_mask(self, values: Mask | None) -> None:
        run = self._running("learning_mask")
        run.masks.set(learning=as_learning_mask(values, run.context.envs.spec, run.context.seating.agents))

    @property
    def exploration_mask(self) -> tuple[bool, ...]:
        """Seats that explore. A hook may set it: it is checked at once and takes effect at the next batch step."""
        return tuple(bool(value) for value in self._running("exploration_mask").masks.wanted[1])

    @exploration_mask.setter
    def exploration_mask(self, values: Mask | None) -> None:
        run = self._running("exploration_mask")
        run.masks.set(exploring=as_exploration_mask(values, run.context.envs.spec))

    def _running(self, what: str) -> Run:
        if self.run is None or self.run.finished:
            raise ConfigError(f"{what} is given to train(); it can be set here only while training runs")
        return self.run

    def _earlier(self, go_on: Any, resume: Any) -> Run | None:
        """Return the run that a call of `train` continues, or None for a new run.

        go_on: False, True for the trainer's own last call, or another trainer for its last call.
        Raises ConfigError if there is no such run or it cannot be continued.
        """
        if go_on is False:
            return None
        if not (go_on is True or isinstance(go_on, DecentralizedTrainer)):
            raise ConfigError(f"go_on must be True, False or a DecentralizedTrainer, got {shown(go_on)}")
        if resume is not None:
            raise ConfigError(
                "go_on continues an earlier call of this process, resume continues a checkpoint: give one"
            )
        other = self if go_on is True else go_on
        return check_finished(other.run, "this trainer" if other is self else "the trainer given to it")
