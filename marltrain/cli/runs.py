"""`marltrain test` and `marltrain play`: open the folder of a run, and play episodes with its agents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.cli.agents import add_loading_arguments, loading_arguments
from marltrain.cli.options import Parser, add_working_folder, integer, key_values, or_none, pop_given
from marltrain.cli.output import say
from marltrain.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from marltrain.policies.agents.agent import Agent
    from marltrain.tools.saved_run import SavedRun
    from marltrain.trainer.evaluating.evaluation import TestResult


def add_test_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain test`."""
    from marltrain.trainer.settings import TEST_STEPS

    _add_run_arguments(parser)
    limit = f"env steps after which the test is cut (default: {TEST_STEPS})"
    parser.add_argument("--sampled", action="store_true", help="let agents explore as in training")
    parser.add_argument("--max-test-steps", type=or_none(integer), metavar="INT|none", help=limit)


def add_play_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain play`."""
    _add_run_arguments(parser)
    parser.add_argument("--out", metavar="FILE", help="film it: a .gif or .mp4 (default: show a window)")
    parser.add_argument("--text", action="store_true", help="show text in the terminal (with --out, as pictures)")
    parser.add_argument("--fps", type=float, metavar="FLOAT", help="pictures a second")
    parser.add_argument("--frames", metavar="FOLDER", help="write pictures into this folder")
    parser.add_argument("--every", type=integer, metavar="INT", help="write every n-th picture (--frames)")
    parser.add_argument("--delay", type=float, metavar="SECONDS", help="for each picture, in place of --fps")
    parser.add_argument("--max-steps", type=integer, metavar="INT", help="env steps after which an episode is cut")
    parser.add_argument(
        "--human", action="append", metavar="PLAYER", help="play this player yourself, by keys (--text: typed)"
    )
    parser.add_argument("--key", action="append", metavar="KEY=ACTION", help="key of an action, such as left=1")
    parser.add_argument("--explore", action="store_true", help="let agents explore as in training")


def _add_run_arguments(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--agents", choices=("best", "last"), help="which of its agents (default: best; last where no test was played)"
    )
    parser.add_argument("--member", type=integer, metavar="INT", help="of an opponent pool: the member that plays")
    parser.add_argument("--random", action="append", metavar="PLAYER", help="let this player play at random")
    parser.add_argument("--env", help="namespace/name or module:attribute, for a run of an environment of your own")
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="another argument of the environment")
    add_loading_arguments(parser)
    parser.add_argument("--episodes", type=integer, metavar="INT", help="how many")
    parser.add_argument("--seed", type=integer, metavar="INT", help="of the episodes; drawn where none is given")


def test(options: dict[str, Any]) -> None:
    """Play test episodes with a run's agents and print their returns."""
    from marltrain.trainer.decentralized import DecentralizedTrainer

    run = _open_run(options)
    limit = pop_given(options, "max_test_steps")
    trainer = DecentralizedTrainer(run.env, env_args=run.env_args, seed=run.seed, progress=False, **limit)
    _print_test(trainer.test(run.agents, **options), run.seed)


def play(options: dict[str, Any]) -> None:
    """Show or film episodes of a run's agents and print their returns."""
    from marltrain.trainer.playing.play import play as play_episodes

    run, greedy = _open_run(options), not options.pop("explore", False)
    keys = key_values("--key", options.pop("key", [])) or None
    returns = play_episodes(run.env, run.agents, env_args=run.env_args, greedy=greedy, seed=run.seed, keys=keys,
                            **options)  # fmt: skip
    for episode, row in enumerate(returns):
        say(f"episode {episode}: returns {', '.join(f'{value:.4g}' for value in row)}")
    say(f"seed {run.seed}" + (f", filmed to {options['out']}" if "out" in options else "")
          + (f", pictures in {options['frames']}" if "frames" in options else ""))  # fmt: skip


@dataclass(frozen=True)
class _Run:
    """A run's environment and agents, and the seed of the episodes."""

    env: str
    env_args: dict[str, Any]
    agents: list[Agent]
    seed: int


def _open_run(options: dict[str, Any]) -> _Run:
    """Return the run that the options name; raises SaveError for a bad folder, ConfigError for a wrong player."""
    from marltrain.core.seeds import fresh_seed
    from marltrain.envs import probe, resolve
    from marltrain.policies.agents.fixed import RandomAgent

    env_args = key_values("--env-arg", options.pop("env_arg", []))
    run = opened_run(options)
    run = replace(run, env_args={**run.env_args, **env_args})
    if "member" in options:
        _take_member(run.agents, options.pop("member"))
    names = probe(resolve(run.env, run.env_args)).names
    for player in options.pop("random", []):
        if player not in names:
            raise ConfigError(f"--random: {run.env} has no player {player!r}.{did_you_mean(player, names)}"
                              f" There are {', '.join(names)}")  # fmt: skip
        run.agents[names.index(player)] = RandomAgent()
    return _Run(run.env, run.env_args, run.agents, options.pop("seed") if "seed" in options else fresh_seed())


def _take_member(agents: list[Agent], number: int) -> None:
    """Put a member of each set of policies in its place; raises ConfigError without a set."""
    from marltrain.policies.agents.mixed import MixedAgent

    sets = {seat: agent for seat, agent in enumerate(agents) if isinstance(agent, MixedAgent)}
    if not sets:
        raise ConfigError(f"--member {number}: no player of this run is an opponent pool: leave --member out")
    for seat, agent in sets.items():
        agents[seat] = agent.member(number)


def opened_run(options: dict[str, Any]) -> SavedRun:
    """Return the run that the options name, and remove these (`run`, `env`, `agents`, ...); see `open_run`."""
    from marltrain.tools.saved_run import open_run

    if "env" in options:
        add_working_folder(options["env"])
    folder, chosen_agents = options.pop("run"), options.pop("agents", None)
    run = open_run(folder, env=options.pop("env", None), agents=chosen_agents, **loading_arguments(options))
    if chosen_agents is None and run.chosen == "last":
        say(f"{folder} holds no best agents, since no test was played: these are the last, {Path(folder) / 'last'}")
    return run


def _print_test(result: TestResult, seed: int) -> None:
    low, high = result.interval
    cut = f", {result.num_unfinished:,} of them cut" if result.num_unfinished else ""
    say(f"mean return {result.mean:.4g} (95 % interval {low:.4g} to {high:.4g}), {len(result.lengths):,} episodes "
          f"of {result.lengths.mean():.1f} env steps{cut}, seed {seed}")  # fmt: skip
    width = max(len("player"), *map(len, result.names))
    counts = [] if result.wins is None or result.losses is None else [result.wins, result.losses]
    say(f"{'player':<{width}}  {'return':>9}" + (f"  {'won':>7}  {'lost':>7}" if counts else ""))
    for p, name in enumerate(result.names):
        shares = "".join(f"  {count[p] / len(result.lengths):>7.1%}" for count in counts)
        say(f"{name:<{width}}  {result.returns[:, p].mean():>9.4g}{shares}")
