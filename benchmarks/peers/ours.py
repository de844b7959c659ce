"""marltrain on its native games: the works of the comparison, and W1 with other numbers of players and environments.

    python -m benchmarks.peers.ours W1 [--backend tensorflow] [--compiled] [--players 8] [--envs 64] [--width 128]
    python -m benchmarks.peers.ours W1 --runners 2 [--compiled] [--max-lag 1]

With --runners, the game is mpe2's, in Ray actors, which work ahead of the updates with --max-lag. --width sets the
width of the networks. A short first run compiles the code and reads it from the disk cache; the second run is measured.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import marltrain as mt
from benchmarks.peers import common
from benchmarks.peers.common import WATCH, Task
from marltrain.trainer.events.callbacks import Callback, Moment

SPREAD, CARTPOLE = "marltrain/simple_spread_v3", "marltrain/CartPole-v1"
FOREVER = 10**9
WARM_UP = {work: {"steps_per_train": 4 * common.LEARNING_STARTS} for work in common.OF_Q_LEARNING}
"""Length of the first run of works for which a few updates do not suffice: they learn only with a filled buffer."""


@dataclass(frozen=True)
class Trial:
    """A task with marltrain's options: width of the networks, backend, compilation, arguments of the trainer."""

    task: Task
    width: int
    backend: str
    compiled: bool
    trainer: dict[str, Any]

    @property
    def env(self) -> tuple[str, dict[str, Any]]:
        """Name of the game, and its arguments."""
        if self.task.work == "W3":
            return CARTPOLE, {}
        return ("mpe2/simple_spread_v3" if self.task.runners else SPREAD), {"N": self.task.players}


class Laps(Callback):
    """Ends a run when the time of the measurement is over."""

    only_watches = True

    def __init__(self, trial: Trial) -> None:
        self.seconds = trial.task.seconds

    def on_update_end(self, moment: Moment) -> None:
        """Record the update; stop when the time is over."""
        WATCH.steps = moment.env_steps
        if WATCH.lap(self.seconds):
            moment.stop("measured")


class Learned(Callback):
    """Ends a run when cart-pole is solved, or after its largest number of steps."""

    def on_train_start(self, moment: Moment) -> None:
        """Start the clock."""
        WATCH.start()

    def on_episode_end(self, moment: Moment) -> None:
        """Record the return; stop when the run is at its end."""
        WATCH.steps = moment.env_steps
        WATCH.returns.append(float(moment.data["returns"].mean()))
        if WATCH.spent():
            moment.stop("learned or spent")


def ppo(trial: Trial) -> tuple[str, dict[str, Any]]:
    """Return PPO's settings for W1 and W4."""
    return "ppo", {
        "epochs": common.EPOCHS, "minibatches": common.MINIBATCHES, "update_freq": trial.task.envs * common.STEPS,
        "learning_rate": common.PPO_RATE, "gamma": common.GAMMA, "gae_lambda": common.LAMBDA, "clip": common.CLIP,
        "entropy_coef": common.ENTROPY, "value_coef": common.VALUE, "max_grad_norm": common.MAX_NORM,
        "network": mt.MLP((trial.width,) * 2, "tanh"),
    }  # fmt: skip


def mappo(trial: Trial) -> tuple[str, dict[str, Any]]:
    """Return MAPPO's settings for W5."""
    return "mappo", {**ppo(trial)[1], "critic_input": "state", "normalize_values": None}


def dqn(trial: Trial) -> tuple[str, dict[str, Any]]:
    """Return DQN's settings for W2."""
    return "dqn", {
        "learning_rate": common.DQN_RATE, "gamma": common.GAMMA, "capacity": common.REPLAY, "batch_size": common.ROWS,
        "update_freq": common.EVERY, "update_per_step": 1 / common.EVERY, "learning_starts": common.LEARNING_STARTS,
        "target_sync": common.TARGET_EVERY // common.EVERY, "double": True, "max_grad_norm": None,
        "epsilon": mt.linear(1.0, common.EPSILON, common.EPSILON_STEPS), "network": mt.MLP((trial.width,) * 2, "relu"),
    }  # fmt: skip


def qmix(trial: Trial) -> tuple[str, dict[str, Any]]:
    """Return QMIX's settings for W6."""
    return "qmix", {**dqn(trial)[1], "mixing_units": common.MIXING_UNITS, "hyper_units": common.HYPER_UNITS}


def cartpole_ppo(trial: Trial) -> tuple[str, dict[str, Any]]:
    """Return PPO's tuned settings for W3, with their update frequency."""
    tuned = mt.tuned("ppo", "gymnasium/CartPole-v1")
    return "ppo", {**tuned["agents"], "update_freq": tuned["trainer"]["update_freq"]}


SETTINGS = {"W1": ppo, "W4": ppo, "W2": dqn, "W3": cartpole_ppo, "W5": mappo, "W6": qmix}


def run(trial: Trial, **budget: Any) -> Any:
    """Train new agents, without tests, plots and progress bar; return the table of episodes."""
    env, env_args = trial.env
    algo, settings = SETTINGS[trial.task.work](trial)
    agents = mt.make_agents(
        algo, env, env_args=env_args, seed=trial.task.seed, backend=trial.backend, jit_compile=trial.compiled,
        **settings,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        trainer = mt.DecentralizedTrainer(
            env, env_args, num_train_envs=trial.task.envs, num_test_envs=1, episodes_per_test=1, test_freq=FOREVER,
            seed=trial.task.seed, run_dir=Path(folder) / "run", progress=False, **trial.trainer, **budget,
        )  # fmt: skip
        return trainer.train(agents, [1] * len(agents), plot=False)["episodes"]


def asked() -> Trial:
    """Read the trial from the command line."""
    parser = common.parser_of(__doc__, tuple(SETTINGS))
    common.add_runners(parser)
    parser.add_argument("--backend", choices=("torch", "tensorflow"), default="torch")
    parser.add_argument("--compiled", action="store_true", help="jit_compile=True")
    parser.add_argument("--collect", help="collect= of the trainer; left out by default")
    parser.add_argument("--max-lag", type=int, help="asynchronous runners; left out: synchronous ones")
    parser.add_argument("--players", type=int, help="in place of the work's own number")
    parser.add_argument("--envs", type=int, help="in place of the work's own number")
    parser.add_argument("--width", type=int, default=common.WIDTH, help="of the hidden layers")
    args = parser.parse_args()
    WATCH.start_clock(processor=args.processor)
    players, envs = args.players or common.PLAYERS[args.work], args.envs or common.ENVS[args.work]
    task = Task(args.work, players, envs, args.seconds, args.seed, args.runners)
    trainer: dict[str, Any] = {"collect": args.collect} if args.collect else {}
    trainer |= {"runners": args.runners} if args.runners else {}
    trainer |= {} if args.max_lag is None else {"sync": False, "max_lag": args.max_lag}
    if args.work == "W6":
        trainer["team_reward"] = "mean"
    return Trial(task, args.width, args.backend, args.compiled, trainer)


def main() -> None:
    """Make a first run for compilation, then the measured run."""
    trial = asked()
    task = trial.task
    run(trial, **WARM_UP.get(task.work, {"updates_per_train": 2}))
    if task.work == "W3":
        run(trial, callbacks=[Learned()], steps_per_train=FOREVER)
    else:
        episodes = run(trial, callbacks=[Laps(trial)], steps_per_train=FOREVER)
        WATCH.returns += episodes.filter(like="return/").mean(axis=1).tolist()
    kind = f"{trial.backend}{', compiled' if trial.compiled else ''}"
    common.report(
        f"marltrain, {kind}", task, ("numba", "torch" if trial.backend == "torch" else "tensorflow"),
        networks="separate", width=trial.width,
    )  # fmt: skip


if __name__ == "__main__":
    main()
