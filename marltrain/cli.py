"""The command line: `marltrain train | test | play | plot | envs`, also as `python -m marltrain`.

This module contains no defaults: they come from the trainer's signature and the algorithms' settings. Each command
imports heavy modules itself.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
import select
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from marltrain.errors import ConfigError, MarlTrainError, SaveError, did_you_mean, nearest
from marltrain.files import read_json, whole_folder
from marltrain.version import __version__

if TYPE_CHECKING:
    from marltrain.policies.agents.agent import Agent
    from marltrain.trainer.evaluating.evaluation import TestResult

CONFIG = "config.json"
PLACE = ("device", "jit_compile", "strategy")
"""Arguments of every agent that `--set` accepts besides the settings of its algorithm."""
INTERRUPTED = 130
"""Exit code of a command ended by Ctrl-C, as in a shell."""
BROKEN_PIPE = 141
"""Exit code of a command whose reader is gone (SIGPIPE), as in a shell."""


class Parser(argparse.ArgumentParser):
    """Parser of one command's arguments; an unknown option raises ConfigError, which suggests the nearest option."""

    def __init__(self, command: str, summary: str) -> None:
        """Create the parser; it rejects abbreviated options, since they may be typing errors."""
        super().__init__(
            prog=f"marltrain {command}",
            description=summary,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,  # omitted options are not passed on: defaults live elsewhere
        )
        self.command = command
        self.elsewhere: dict[str, str] = {}
        """Names that are not options -> how to write them; for suggestions."""

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the given options by name; raises ConfigError for unknown options and wrong values."""
        known = self._option_string_actions
        for word in words:
            option = word.partition("=")[0]
            if re.match(r"--?[A-Za-z]", option) and option not in known:
                near = nearest(option, [*known, *self.elsewhere])
                hint = f" Did you mean {self.elsewhere.get(near, near)!r}?" if near else ""
                raise ConfigError(f"{self.command} has no option {option!r}.{hint}")
        return vars(self.parse_args(list(words)))

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError with a message of argparse."""
        raise ConfigError(f"{self.command}: {message}")


# Values


def integer(text: str) -> int:
    """Parse an integer, such as 1000000, 1_000_000 or 1e6; raises ValueError for other text."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
    if not value.is_integer():
        raise ValueError(f"{text} is no integer")
    return int(value)


def _value(text: str) -> Any:
    """Parse a value: a Python literal, a schedule or a network such as MLP((128, 128)); else return the text."""
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    try:
        node = ast.parse(text, mode="eval").body
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            return ast.literal_eval(node)
    except (ValueError, SyntaxError):
        return text
    return _call(node, node.func.id, text)


def _call(node: ast.Call, name: str, text: str) -> Any:
    """Return the schedule or network that a call expression describes; raises ConfigError for other calls."""
    from marltrain.policies.networks import CNN, MLP
    from marltrain.policies.schedules import cosine, exponential, linear

    makers: dict[str, Callable[..., Any]] = {
        "CNN": CNN, "MLP": MLP, "cosine": cosine, "exponential": exponential, "linear": linear,
    }  # fmt: skip
    if name not in makers:
        raise ConfigError(f"{text!r}: there is no {name!r}.{did_you_mean(name, makers)}")
    try:
        arguments = [ast.literal_eval(argument) for argument in node.args]
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        return makers[name](*arguments, **named)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{text!r} cannot be made: {error}") from error


def _pairs(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE texts; raises ConfigError for a text without "=" and for a repeated key."""
    pairs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option} takes KEY=VALUE, got {text!r}")
        if key in pairs:
            raise ConfigError(f"{option} names {key!r} twice")
        try:
            pairs[key] = _value(value)
        except ConfigError as error:
            raise ConfigError(f"{option} {key}: {error}") from error
    return pairs


# train


def _add_settings(group: Any, settings: type) -> None:
    """Add an option for every field of a settings dataclass, with its type, documentation and default."""
    kinds: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
    for field in fields(settings):
        kind = next(kinds[word] for word in str(field.type).split(" | ") if word in kinds)
        choices = field.metadata["choices"]
        told = field.metadata["doc"] + (f": {' or '.join(choices)}" if choices else "")
        told += "" if field.default is None else f" (default: {field.default})"
        option = "--" + field.name.replace("_", "-")
        if kind is bool:
            group.add_argument(option, action=argparse.BooleanOptionalAction, help=told)
        else:
            read: Callable[[str], Any] = integer if kind is int else kind
            metavar = kind.__name__.upper()
            if str(field.type).endswith("| None") and field.default is not None:
                read, metavar = _or_none(read), f"{metavar}|none"
            group.add_argument(option, type=read, metavar=metavar, help=told)


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser that returns None for "none", and calls `read` for other text."""

    def optional(text: str) -> Any:
        return None if text.lower() == "none" else read(text)

    optional.__name__ = read.__name__  # argparse shows this name in messages
    return optional


def _add_train(parser: Parser) -> None:
    from marltrain.trainer.settings import TrainerSettings

    parser.add_argument("env", metavar="ENV", help="namespace/name (see `marltrain envs`) or module:attribute")
    parser.add_argument("--algo", action="append", required=True, metavar="[PLAYER=]ALGO",
                        help="algorithm: ppo, dqn, ...; once for each player or pattern, or one for all")  # fmt: skip
    parser.add_argument("--tuned", action="store_true", help="begin with the settings known to work for this pair")
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="argument of the environment")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="setting of the agents, see below")
    parser.add_argument("--share", action="store_true", help="one agent for all players of equal spaces")
    parser.add_argument("--self-play", action="store_true", help="--share, and test against random players")
    parser.add_argument("--backend", help=f"framework (default: {_default_backend()})")
    parser.add_argument("--run-dir", metavar="FOLDER", help="where all files go (default: a new one in runs/)")
    parser.add_argument(
        "--checkpoint", type=integer, metavar="INT", help="env steps between checkpoints (default: none)"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --run-dir")
    parser.add_argument("--any-threads", action="store_true", help="resume with another number of threads too")
    parser.add_argument("--team-reward", help="one reward for all, in learning only: mean or sum")
    _add_settings(parser.add_argument_group("the trainer's settings"), TrainerSettings)
    parser.elsewhere = {name: f"--set {name}=..." for name in _settings_of_agents()}
    parser.epilog = _settings_help()


def _default_backend() -> Any:
    from marltrain.trainer.make_agents import make_agents

    return inspect.signature(make_agents).parameters["backend"].default


def _settings_of_agents() -> list[str]:
    """Return the names that `--set` accepts, for all algorithms."""
    from marltrain.policies.algorithms.registry import ALGORITHMS, agent_class

    settings = [fields(agent_class(algo).algorithm_class.Settings) for algo in ALGORITHMS]
    names = dict.fromkeys(field.name for of_one in settings for field in of_one)
    return [*names, *PLACE]


def _settings_help() -> str:
    """Return a list of every algorithm's settings with their defaults, as text."""
    from marltrain.policies.algorithms.registry import ALGORITHMS, agent_class

    lines = [
        "a VALUE is a Python literal, text, a schedule or a network:",
        "  --set learning_rate=1e-3 --set 'epsilon=linear(1, 0.05, 20000)' --set 'network=MLP((128, 128))'",
        "each player its own algorithm, and settings of some players:",
        "  --algo wolf=dqn --algo 'hare_*=ppo' --set wolf.learning_starts=500 --set gamma=0.95",
    ]
    for algo in ALGORITHMS:
        lines += ["", f"settings of {algo}:"]
        for field in fields(agent_class(algo).algorithm_class.Settings):
            default = "" if field.default is MISSING else f" (default: {_spoken(field.default)})"
            lines.append(f"  {field.name:<22}{field.metadata.get('doc', '')}{default}")
    return "\n".join(lines)


def _spoken(value: Any) -> str:
    describe = getattr(value, "describe", None)
    if describe is None:
        return str(value)
    described = dict(describe())
    kind = described.pop("kind", described.pop("type", type(value).__name__))
    return f"{kind}({', '.join(map(str, described.values()))})"


def _train(given: dict[str, Any]) -> Path | None:
    from marltrain.policies.agents.fixed import RandomAgent
    from marltrain.trainer.decentralized import DecentralizedTrainer
    from marltrain.trainer.make_agents import make_agents
    from marltrain.trainer.saving.checkpoint import Checkpoint
    from marltrain.trainer.tuned import tuned

    _reach(given["env"])
    env, self_play = given.pop("env"), given.pop("self_play", False)
    env_args = _pairs("--env-arg", given.pop("env_arg", []))
    algo, hyper = _algorithms(given.pop("algo"), _pairs("--set", given.pop("set", [])))
    for option, on in (("--tuned", given.get("tuned")), ("--self-play", self_play)):
        if on and not isinstance(algo, str):
            raise ConfigError(f"{option} needs one algorithm for all players: --algo ALGO")
    share = given.pop("share", False) or self_play
    backend = {"backend": given.pop("backend")} if "backend" in given else {}
    known = tuned(algo, env) if given.pop("tuned", False) else {"trainer": {}, "agents": {}}
    resuming, here = _resuming(given), Path.cwd()
    try:
        callbacks = [Checkpoint(every_steps=given.pop("checkpoint"))] if "checkpoint" in given else []
    except ConfigError as error:
        raise ConfigError(f"--checkpoint: {error}") from error
    trainer = DecentralizedTrainer(env, env_args=env_args, callbacks=callbacks, **{**known["trainer"], **given})
    making = {**known["agents"], **hyper, **backend, **({"share": True} if share else {})}
    agents = make_agents(algo, env, env_args=env_args, seed=trainer.seed, **making)
    line_up = [agents[0], *(RandomAgent() for _ in agents[1:])] if self_play else None
    learning = [agent.learns for agent in agents]
    result = trainer.train(agents, learning if any(learning) else [1] * len(agents), test_agents=line_up, **resuming)
    folder = Path(result["run_dir"])
    if not Path(given.get("run_dir", "")).is_absolute() and folder.is_relative_to(here) and here == Path.cwd():
        folder = folder.relative_to(here)  # show it relative, as the user gave it
    _tell_training(result, env, folder)
    return folder if result["stop_reason"] == "interrupted" else None


def _algorithms(texts: Sequence[str], settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the argument `name` of `make_agents`, with settings PLAYER.KEY in its entries, and the common settings."""
    entries = {} if len(texts) == 1 and "=" not in texts[0] else _entries(texts)
    common: dict[str, Any] = {}
    for name, value in settings.items():
        player, dot, key = name.rpartition(".")
        _check_setting(name, key)
        if dot and player not in entries:
            hint = did_you_mean(player, entries) or f" Give one with --algo {player}=ALGO, or write --set {key}=..."
            raise ConfigError(f"--set {name}: no --algo is given for {player!r}.{hint}")
        (entries[player][1] if dot else common)[key] = value
    return entries or texts[0], common


def _entries(texts: Sequence[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Parse PLAYER=ALGO texts; raises ConfigError for other texts and for a repeated player."""
    entries: dict[str, tuple[str, dict[str, Any]]] = {}
    for text in texts:
        player, _, algo = text.rpartition("=")
        if not player or not algo:
            raise ConfigError(f"--algo takes one ALGO for all players, or PLAYER=ALGO for each, got {text!r}")
        if player in entries:
            raise ConfigError(f"--algo names {player!r} twice")
        entries[player] = (algo, {})
    return entries


def _check_setting(name: str, key: str) -> None:
    """Raise ConfigError if `--set` names a setting of the trainer instead of the agents."""
    from marltrain.trainer.settings import TrainerSettings

    of_agents, of_trainer = _settings_of_agents(), [field.name for field in fields(TrainerSettings)]
    near = nearest(key, [*of_agents, *of_trainer])
    if near not in ("", *of_agents):
        option = "--" + near.replace("_", "-")
        raise ConfigError(f"--set {name}: no agent has this setting. Did you mean the trainer's option {option!r}?")


def _resuming(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of resuming from `given` and return them as arguments of `train`; raises ConfigError."""
    resume, any_threads = given.pop("resume", False), given.pop("any_threads", False)
    if any_threads and not resume:
        raise ConfigError("--any-threads has a meaning only with --resume")
    if resume and "run_dir" not in given:
        raise ConfigError("--resume: name the folder of the run with --run-dir")
    return {"resume": given["run_dir"], "any_threads": any_threads} if resume else {}


def _tell_training(result: Mapping[str, Any], env: str, folder: Path) -> None:
    """Print the result of training, the files written and the next commands."""
    tests = result["history"]
    print(
        f"{result['num_collected_episodes']:,} episodes, {result['num_collected_steps']:,} env steps, "
        f"{result['num_gradient_steps']:,} gradient steps in {result['training_time']:.1f} s; "
        f"ended by {result['stop_reason']}"
    )
    if len(tests):
        first, best, last = tests["metric"].iloc[0], tests["metric"][tests["best"]].iloc[-1], tests["metric"].iloc[-1]
        print(f"metric: {first:.4g} at first, {best:.4g} at best, {last:.4g} at last")
    if result["num_faults"]:
        print(f"{result['num_faults']:,} faults of environments, {result['num_dropped_steps']:,} env steps dropped")
    for name in ("best", "last", "history.parquet", "episodes.parquet", "faults.parquet", "metrics.png", CONFIG):
        if (folder / name).exists():
            print(f"  {folder / name}")
    named = "" if _is_safe(env) else f" --env {env}"
    print(f"next: marltrain test {folder}{named}, marltrain play {folder}{named}, marltrain plot {folder}")


def _tell_resuming(words: Sequence[str], folder: Path) -> None:
    """Print the command that resumes an interrupted run."""
    from marltrain.trainer.saving.checkpoint import newest

    if newest(folder) is None:
        print("interrupted: there is no checkpoint to go on from; --checkpoint STEPS writes some")
        return
    rest = iter(words)
    kept = [word for word in rest if word != "--resume" and not word.startswith("--run-dir=")
            and not (word == "--run-dir" and next(rest))]  # fmt: skip
    print(f"go on with: {shlex.join(['marltrain', 'train', *kept, '--run-dir', str(folder), '--resume'])}")


# test, play


def _add_run(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--agents", choices=("best", "last"), help="which of its agents (default: best; last where no test was played)"
    )
    parser.add_argument("--random", action="append", metavar="PLAYER", help="let this player play at random")
    parser.add_argument("--env", help="namespace/name or module:attribute, for a run of an environment of your own")
    parser.add_argument("--episodes", type=integer, metavar="INT", help="how many")
    parser.add_argument("--seed", type=integer, metavar="INT", help="of the episodes; drawn where none is given")


def _add_test(parser: Parser) -> None:
    from marltrain.trainer.settings import TEST_STEPS

    _add_run(parser)
    told = f"env steps after which the test is cut (default: {TEST_STEPS})"
    parser.add_argument("--max-test-steps", type=_or_none(integer), metavar="INT|none", help=told)


def _add_play(parser: Parser) -> None:
    _add_run(parser)
    parser.add_argument("--out", metavar="FILE", help="film it: a .gif or .mp4 (default: show a window)")
    parser.add_argument("--fps", type=float, metavar="FLOAT", help="pictures a second")
    parser.add_argument("--explore", action="store_true", help="let agents explore as in training")


@dataclass(frozen=True)
class _Run:
    """Content of a run's folder: its environment and its agents."""

    env: str
    env_args: dict[str, Any]
    agents: list[Agent]


def _opened(given: dict[str, Any]) -> _Run:
    """Return the run that the options name; raises SaveError for a bad folder, ConfigError for a wrong player."""
    from marltrain.envs import probe, resolve
    from marltrain.policies.agents.fixed import RandomAgent
    from marltrain.policies.agents.saving import load

    folder = whole_folder(given.pop("run"))
    config = read_json(folder / CONFIG)
    env, env_args = (config.get("env"), config.get("env_args")) if isinstance(config, dict) else (None, None)
    if not isinstance(env, str) or not isinstance(env_args, dict):
        raise SaveError(f"{folder / CONFIG}: names no environment")
    if "env" not in given and not _is_safe(env):
        raise SaveError(f"{folder / CONFIG}: the run's environment is {env!r}. No file may choose what code is run: if "
                        "you know this one, name it yourself with --env")  # fmt: skip
    if "env" in given:
        env = given.pop("env")
        _reach(env)
    names = probe(resolve(env, env_args)).names
    agents = load(_agents_of(folder, given.pop("agents", None)))
    for player in given.pop("random", []):
        if player not in names:
            raise ConfigError(f"--random: {env} has no player {player!r}.{did_you_mean(player, names)}"
                              f" There are {', '.join(names)}")  # fmt: skip
        agents[names.index(player)] = RandomAgent()
    return _Run(env, env_args, agents)


def _agents_of(folder: Path, asked: str | None) -> Path:
    """Return the folder of a run's agents: those `asked` for, else the best, or the last ones if no test was played.

    Raises SaveError if there are none.
    """
    if asked is not None:
        return folder / asked
    try:
        return whole_folder(folder / "best")
    except SaveError:
        if not (folder / "last").is_dir():
            raise
    print(f"{folder} holds no best agents, since no test was played: these are the last, {folder / 'last'}")
    return folder / "last"


def _is_safe(env: str) -> bool:
    """Return whether an environment's name leads only to imports of known modules."""
    from marltrain.envs.registry import imports_only_known

    return imports_only_known(env)


def _reach(env: str) -> None:
    """Add the working folder to sys.path if the user names a module, unless Python runs with a safe path."""
    if ":" in env and not sys.flags.safe_path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: a file there must not shadow an installed module


def _test(given: dict[str, Any]) -> None:
    from marltrain.random import fresh_seed
    from marltrain.trainer.decentralized import DecentralizedTrainer

    run, seed = _opened(given), given.pop("seed", None)
    seed = fresh_seed() if seed is None else seed
    limit = {"max_test_steps": given.pop("max_test_steps")} if "max_test_steps" in given else {}
    trainer = DecentralizedTrainer(run.env, env_args=run.env_args, seed=seed, progress=False, **limit)
    _tell_test(trainer.test(run.agents, **given), seed)


def _tell_test(result: TestResult, seed: int) -> None:
    low, high = result.interval
    cut = f", {result.num_unfinished:,} of them cut" if result.num_unfinished else ""
    print(f"mean return {result.mean:.4g} (95 % interval {low:.4g} to {high:.4g}), {len(result.lengths):,} episodes "
          f"of {result.lengths.mean():.1f} env steps{cut}, seed {seed}")  # fmt: skip
    width = max(len("player"), *map(len, result.names))
    won, lost = result.wins, result.losses
    print(f"{'player':<{width}}  {'return':>9}" + ("" if won is None else f"  {'won':>7}  {'lost':>7}"))
    for p, name in enumerate(result.names):
        shares = (
            "" if won is None or lost is None else "".join(f"  {n[p] / len(result.lengths):>7.1%}" for n in (won, lost))
        )
        print(f"{name:<{width}}  {result.returns[:, p].mean():>9.4g}{shares}")


def _play(given: dict[str, Any]) -> None:
    from marltrain.random import fresh_seed
    from marltrain.trainer.play import play

    run, seed = _opened(given), given.pop("seed", None)
    seed = fresh_seed() if seed is None else seed
    returns = play(
        run.env, run.agents, env_args=run.env_args, greedy=not given.pop("explore", False), seed=seed, **given
    )
    for episode, row in enumerate(returns):
        print(f"episode {episode}: returns {', '.join(f'{value:.4g}' for value in row)}")
    print(f"seed {seed}" + (f", filmed to {given['out']}" if "out" in given else ""))


# plot, envs


def _add_plot(parser: Parser) -> None:
    from marltrain.trainer.reporting.plots import plot_runs

    defaults = {name: p.default for name, p in inspect.signature(plot_runs).parameters.items()}
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs; runs of one kind form a band")
    parser.add_argument("--x", help=f"horizontal axis: steps, episodes or time (default: {defaults['x']})")
    parser.add_argument("--smooth", type=integer, metavar="INT", help=f"tests averaged (default: {defaults['smooth']})")
    parser.add_argument("--out", metavar="FILE", help=f"the picture (default: {defaults['out']})")


def _plot(given: dict[str, Any]) -> None:
    from marltrain.trainer.reporting.plots import plot_runs

    print(plot_runs(given.pop("runs"), **given))


def _add_envs(parser: Parser) -> None:
    parser.add_argument("filter", nargs="?", metavar="FILTER", help="show only names that contain this")


def _envs(given: dict[str, Any]) -> None:
    from marltrain.envs import list_environments

    names, wanted = list_environments(), given.get("filter", "")
    found = [name for name in names if wanted.lower() in name.lower()]
    if not found:
        words = {word for name in names for word in re.split(r"[/_-]", name)}
        raise ConfigError(f"no environment's name contains {wanted!r}.{did_you_mean(wanted, words)}")
    print("\n".join(found))


# The commands


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    summary: one line for the help.  declare: adds its arguments to a parser.
    run: runs the command with the given options; returns the folder of an interrupted run, else None.
    """

    summary: str
    declare: Callable[[Parser], None]
    run: Callable[[dict[str, Any]], Path | None]


COMMANDS = {
    "train": Command("train agents, one a player, in an environment", _add_train, _train),
    "test": Command("play test episodes with a run's agents and print what they earn", _add_test, _test),
    "play": Command("watch or film a run's agents", _add_play, _play),
    "plot": Command("draw the learning curves of runs", _add_plot, _plot),
    "envs": Command("list the environments that can be named", _add_envs, _envs),
}


def _overview() -> str:
    lines = ["usage: marltrain COMMAND ...", "", "Train several agents at once in one environment.", "", "commands:"]
    lines += [f"  {name:<8}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", "`marltrain COMMAND --help` tells more. `marltrain --version` prints the version."])


def _run(words: Sequence[str]) -> int:
    """Run a command; return its exit code: 0, or 130 for an interrupted run."""
    name, rest = (words[0], words[1:]) if words else ("--help", [])
    if name in ("-h", "--help"):
        print(_overview())
    elif name == "--version":
        print(f"marltrain {__version__}")
    elif name not in COMMANDS:
        raise ConfigError(f"no command is called {name!r}.{did_you_mean(name, COMMANDS)}"
                          f" There are {', '.join(COMMANDS)}")  # fmt: skip
    else:
        command = COMMANDS[name]
        parser = Parser(name, command.summary)
        command.declare(parser)
        interrupted = command.run(parser.read(rest))
        if interrupted is not None:
            _tell_resuming(rest, interrupted)
            return INTERRUPTED
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: success.  1: failure.  2: wrong arguments.  130: ended by Ctrl-C or SIGTERM.  141: the reader of the output, such
    as `head`, is gone.
    """
    try:
        try:
            return _run(sys.argv[1:] if words is None else words)
        finally:
            sys.stdout.flush()  # here, so that a missing reader is handled below
    except BrokenPipeError:
        if not _reader_gone():
            raise
        return BROKEN_PIPE
    except MarlTrainError as error:
        print(f"marltrain: {error}", *getattr(error, "__notes__", ()), sep="\n", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    except KeyboardInterrupt:
        print("marltrain: interrupted", file=sys.stderr)
        return INTERRUPTED


def _reader_gone() -> bool:
    """Return whether the reader of stdout is gone; if so, redirect Python's final flush to the null device."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # stdout is not a file, as in a notebook
        return False
    pipe = select.poll()
    pipe.register(output, 0)
    gone = any(state & (select.POLLERR | select.POLLHUP) for _, state in pipe.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return gone
