"""`marltrain tune`: search settings of agents, and write the best ones into a file; or train a population."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from marltrain.cli.agents import algorithms_and_settings
from marltrain.cli.options import Parser, add_fields, key_values, pop_given
from marltrain.cli.output import say
from marltrain.cli.search import add_environment, add_trainer, pop_environment
from marltrain.core.errors import ConfigError
from marltrain.storage.files import made_folder
from marltrain.tools.csv_cells import write_csv
from marltrain.trainer.text_values import parse_value

STUDY, PBT = "study", "pbt"
OF_BOTH = ("steps", "seed", "storage")
"""Settings of a study that a population has, too."""
REPLACED = "replaced"
"""Option for the setting `share` of a population; `--share` shares agents."""
FRESH_EPISODES = 100
"""Number of episodes that the best member of a population plays on seeds that chose no member."""
EPILOG = """values after --set: one is fixed, two numbers are a range, more (or one of two repeated) are choices:
  --set gamma=0.99 --set learning_rate=1e-5 1e-2 --set 'network=MLP((64,))' 'MLP((64, 64))' --set epochs=4 10 10
settings that are not named are searched in the default ranges of the algorithm, see `marltrain.setting`"""


def add_tune_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain tune`."""
    from marltrain.tools.tuning.pbt import PBTSettings
    from marltrain.tools.tuning.study import TuneSettings

    of_population = {field.name: field.default for field in fields(PBTSettings)}
    add_environment(parser)
    parser.add_argument("--algo", required=True, metavar="ALGO", help="algorithm of all players")
    parser.add_argument("--mode", choices=(STUDY, PBT), help="a study of trials, or population-based training, in "
                        "which settings change in the course of training (default: study)")  # fmt: skip
    parser.add_argument("--set", action="append", nargs="+", metavar=("KEY=VALUE", "VALUE"),
                        help="values of a setting of the agents, see below")  # fmt: skip
    parser.add_argument("--share", action="store_true", help="one agent for all players of equal spaces")
    parser.add_argument("--backend", help="framework, torch or tensorflow")
    parser.add_argument("--out", metavar="FOLDER", help="settings.toml, tables, pictures (default: the study, or pbt)")
    add_fields(parser.add_argument_group("the study"), TuneSettings)
    group = parser.add_argument_group("the population of --mode pbt, besides --steps, --seed and --storage FOLDER")
    group.add_argument("--members", type=int, metavar="INT",
                       help=f"agents that are trained at once (default: {of_population['members']})")  # fmt: skip
    group.add_argument("--replaced", type=float, metavar="FLOAT", help="share of the members, the worst ones, that "
                       f"copy others after each test (default: {of_population['share']})")  # fmt: skip
    add_trainer(parser)
    parser.epilog = EPILOG


def tune(options: dict[str, Any]) -> None:
    """Search settings; print the result and write it into a folder."""
    from marltrain.tools.tuning.space import from_words
    from marltrain.tools.tuning.study import TuneSettings

    algo_text, mode = options.pop("algo"), options.pop("mode", STUDY)
    env, env_args = pop_environment(options)
    words = _values(options.pop("set", []))
    algo, _ = algorithms_and_settings([algo_text], dict.fromkeys(words))
    if isinstance(algo, dict):
        raise ConfigError("tune needs one algorithm for all players: --algo ALGO")
    space = {**from_words(words), **pop_given(options, "share", "backend")}
    study = pop_given(options, *(field.name for field in fields(TuneSettings)))
    population = pop_given(options, "members", REPLACED)
    _check_mode(mode, study, population)
    out = options.pop("out", PBT if mode == PBT else study.get("study", "tune"))
    folder = made_folder(out, "--out")
    if mode == PBT:
        _population(algo, env, space, folder, {**study, **population}, env_args=env_args, trainer=options)
    else:
        _study(algo, env, space, folder, study, env_args=env_args, trainer=options)
    arguments = "".join(f" --env-arg {shlex.quote(f'{key}={value}')}" for key, value in env_args.items())
    weights = f" --weights {shlex.quote(str(folder / 'best'))}" if mode == PBT else ""
    say(
        f"marltrain train {shlex.quote(env)} --algo {shlex.quote(algo_text)}{arguments} --settings "
        f"{shlex.quote(str(folder / 'settings.toml'))}{weights}"
    )


def _check_mode(mode: str, study: Mapping[str, Any], population: Mapping[str, Any]) -> None:
    """Raise ConfigError for options of the other mode."""
    other = [name for name in study if name not in OF_BOTH] if mode == PBT else list(population)
    if other:
        needed = STUDY if mode == PBT else PBT
        raise ConfigError(f"--{other[0].replace('_', '-')} has a meaning only with --mode {needed}")


def _study(
    algo: Any, env: str, space: Mapping[str, Any], folder: Path, study: Mapping[str, Any], **of_both: Any
) -> None:
    """Search settings; write the best ones, the table of trials and the pictures."""
    from marltrain.tools.tuning.tuning import tune as search

    result = search(algo, env, space, **of_both, **study)
    say(result)
    file = result.save(folder / "settings.toml")
    write_csv(result.table, folder / "trials.csv")
    for path in (file, folder / "trials.csv", *result.plot(folder)):
        say(f"  {path}")


def _population(
    algo: Any, env: str, space: Mapping[str, Any], folder: Path, settings: dict[str, Any], *,
    env_args: Mapping[str, Any], trainer: Mapping[str, Any],
) -> None:  # fmt: skip
    """Train a population, and test its best member on fresh seeds; write its agents, settings, table and picture."""
    from marltrain.core.seeds import child_seed
    from marltrain.envs import probe, resolve
    from marltrain.policies.agents.saving import save
    from marltrain.tools.run_files.writing import write_settings
    from marltrain.tools.tuning.pbt import PBTSettings, population_based_training
    from marltrain.tools.tuning.space import Space
    from marltrain.trainer.decentralized import DecentralizedTrainer

    if REPLACED in settings:
        settings["share"] = settings.pop(REPLACED)
    resume = settings.pop("storage", None)
    result = population_based_training(algo, env, space, env_args=env_args, trainer=trainer, resume=resume, **settings)
    say(result)
    used = PBTSettings(**settings)
    seed, of_tests = child_seed(used.seed, "fresh"), pop_given(dict(trainer), "max_test_steps", "num_test_envs")
    tester = DecentralizedTrainer(env, env_args=env_args, seed=seed, run_dir=False, progress=False, **of_tests)
    tested = tester.test(result.agents, FRESH_EPISODES)
    low, high = tested.interval
    mean = f"mean return {tested.mean:.6g} (95 %: {low:.6g} to {high:.6g})"
    say(f"{FRESH_EPISODES} episodes on fresh seeds: {mean}")
    save(folder / "best", result.agents, players=probe(resolve(env, env_args)).names)
    fixed = Space.of(algo, space, per_row=True).fixed
    file = write_settings(
        folder / "settings.toml",
        {"trainer": {**trainer, "steps_per_train": used.steps}, "agents": {**fixed, **result.settings}},
        comment=f"member {result.member} of {used.members} at the end; its settings changed in the course of training\n"
        f"{FRESH_EPISODES} episodes on fresh seeds: {mean}",
    )
    write_csv(result.table, folder / "members.csv")
    for path in (file, folder / "best", folder / "members.csv", result.plot(folder / "population.png")):
        say(f"  {path}")


def _values(texts: Sequence[Sequence[str]]) -> dict[str, list[Any]]:
    """Return the values of each setting for texts [KEY=VALUE, VALUE, ...]; raises ConfigError for other texts."""
    result: dict[str, list[Any]] = {}
    for first, *rest in texts:
        for name, value in key_values("--set", [first]).items():
            if name in result:
                raise ConfigError(f"--set names {name!r} twice")
            try:
                result[name] = [value, *map(parse_value, rest)]
            except ConfigError as error:
                raise ConfigError(f"--set {name}: {error}") from error
    return result
