"""`marltrain tune`: search settings of agents, and write the best ones into a file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from marltrain.cli.agents import algorithms_and_settings, settings_of_agents
from marltrain.cli.find import BY_THE_TOOL
from marltrain.cli.options import Parser, add_fields, add_working_folder, key_values, pop_given
from marltrain.errors import ConfigError
from marltrain.files import made_folder
from marltrain.tools.run_files.values import parse_value

EPILOG = """values after --set: one is fixed, two numbers are a range, more (or one of two repeated) are choices:
  --set gamma=0.99 --set learning_rate=1e-5 1e-2 --set 'network=MLP((64,))' 'MLP((64, 64))' --set epochs=4 10 10
settings that are not named are searched in the default ranges of the algorithm, see `marltrain.setting`"""


def add_tune_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain tune`."""
    from marltrain.tools.tuning.tuning import TuneSettings
    from marltrain.trainer.settings import TrainerSettings

    parser.add_argument("env", metavar="ENV", help="namespace/name (see `marltrain envs`) or module:attribute")
    parser.add_argument("--algo", required=True, metavar="ALGO", help="algorithm of all players")
    parser.add_argument("--set", action="append", nargs="+", metavar=("KEY=VALUE", "VALUE"),
                        help="values of a setting of the agents, see below")  # fmt: skip
    parser.add_argument("--env-arg", action="append", metavar="KEY=VALUE", help="argument of the environment")
    parser.add_argument("--share", action="store_true", help="one agent for all players of equal spaces")
    parser.add_argument("--backend", help="framework, torch or tensorflow")
    parser.add_argument("--out", metavar="FOLDER", help="settings.toml, trials.csv and pictures (default: the study)")
    add_fields(parser.add_argument_group("the study"), TuneSettings)
    add_fields(parser.add_argument_group("the trainer's settings"), TrainerSettings, BY_THE_TOOL)
    parser.elsewhere = {name: f"--set {name}=..." for name in settings_of_agents()}
    parser.epilog = EPILOG


def tune(options: dict[str, Any]) -> None:
    """Search settings; print the result and write it into a folder."""
    from marltrain.tools.tuning.space import from_words
    from marltrain.tools.tuning.tuning import TuneSettings, tune as search

    env, algo_text = options.pop("env"), options.pop("algo")
    add_working_folder(env)
    words = _values(options.pop("set", []))
    algo, _ = algorithms_and_settings([algo_text], dict.fromkeys(words))
    if isinstance(algo, dict):
        raise ConfigError("tune needs one algorithm for all players: --algo ALGO")
    space = {**from_words(words), **pop_given(options, "share", "backend")}
    env_args = key_values("--env-arg", options.pop("env_arg", []))
    folder = made_folder(options.pop("out", options.get("study", "tune")), "--out")
    study = pop_given(options, *(field.name for field in fields(TuneSettings)))
    result = search(algo, env, space, env_args=env_args, trainer=options, **study)
    print(result)
    file = result.save(folder / "settings.toml")
    result.table.to_csv(folder / "trials.csv", index=False)
    for path in (file, folder / "trials.csv", *result.plot(folder)):
        print(f"  {path}")
    arguments = "".join(f" --env-arg {shlex.quote(f'{key}={value}')}" for key, value in env_args.items())
    print(f"marltrain train {shlex.quote(env)} --algo {shlex.quote(algo_text)}{arguments} --settings {file}")


def _values(given: Sequence[Sequence[str]]) -> dict[str, list[Any]]:
    """Return the values of each setting for texts [KEY=VALUE, VALUE, ...]; raises ConfigError for other texts."""
    made: dict[str, list[Any]] = {}
    for first, *rest in given:
        for name, value in key_values("--set", [first]).items():
            if name in made:
                raise ConfigError(f"--set names {name!r} twice")
            made[name] = [value, *map(parse_value, rest)]
    return made
