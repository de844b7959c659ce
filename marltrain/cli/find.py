"""`marltrain find`: compare learning rates, optimizers or algorithms."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from marltrain.cli.agents import algorithms_and_settings
from marltrain.cli.options import Parser, integer, key_values, pop_given
from marltrain.cli.output import say
from marltrain.cli.search import add_environment, add_trainer, pop_environment
from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.storage.files import made_folder, path_of
from marltrain.tools.csv_cells import write_csv

WHAT = ("learning_rate", "optimizer", "agent")


def add_find_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain find`."""
    from marltrain.tools.finding.find import OPTIMIZERS, RATES, FindSettings

    parser.add_argument("what", metavar="WHAT", help=f"what candidates differ in: {', '.join(WHAT)}")
    add_environment(parser)
    parser.add_argument("--algo", action="append", required=True, metavar="[PLAYER=]ALGO",
                        help="algorithm, as in `marltrain train`; for `agent`, once for each candidate")  # fmt: skip
    parser.add_argument("--rates", nargs="+", type=float, metavar="FLOAT",
                        help=f"learning rates (default: {RATES[0]:g} to {RATES[-1]:g})")  # fmt: skip
    parser.add_argument("--optimizers", nargs="+", metavar="NAME",
                        help=f"optimizers (default: {' '.join(OPTIMIZERS)})")  # fmt: skip
    defaults = {field.name: field.default for field in fields(FindSettings)}
    parser.add_argument("--steps", type=integer, metavar="INT",
                        help=f"env steps of each training (default: {defaults['steps']})")  # fmt: skip
    parser.add_argument("--seeds", type=integer, metavar="INT",
                        help=f"trainings of each candidate (default: {defaults['seeds']})")  # fmt: skip
    parser.add_argument("--by", help="metric, loss, or a loss by name such as loss/critic (default: metric)")
    parser.add_argument("--final", type=float, metavar="FLOAT",
                        help=f"share of the last tests that count (default: {defaults['final']})")  # fmt: skip
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="setting of the agents")
    parser.add_argument("--storage", metavar="FOLDER",
                        help="save the search there; the same command goes on with it")  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="the picture (default: find.png)")
    parser.add_argument("--curves", metavar="FILE", help="write the tests of all trainings as CSV")
    add_trainer(parser)


def find(options: dict[str, Any]) -> None:
    """Compare the candidates, print the table, and draw the picture."""
    from marltrain.tools.finding.find import find_agent, find_learning_rate, find_optimizer
    from marltrain.trainer.reporting.figures import kind_of_picture

    what, algos = options.pop("what"), options.pop("algo")
    if what not in WHAT:
        raise ConfigError(f"find compares one of {', '.join(WHAT)}, got {what!r}.{did_you_mean(what, WHAT)}")
    env, env_args = pop_environment(options)
    settings = key_values("--set", options.pop("set", []))
    common = {
        **pop_given(options, "steps", "seeds", "by", "final"),
        "resume": options.pop("storage", None),
        "env_args": env_args,
    }
    out, curves = options.pop("out", "find.png"), options.pop("curves", None)
    kind_of_picture(out)
    for file in (out, curves or out):
        made_folder(path_of(file).parent, "--out, --curves")
    rates, optimizers = pop_given(options, "rates"), pop_given(options, "optimizers")
    for given, meant in ((rates, "learning_rate"), (optimizers, "optimizer")):
        if given and what != meant:
            raise ConfigError(f"--{next(iter(given))} has a meaning only for `marltrain find {meant}`")
    if what == "agent":
        hyper = algorithms_and_settings(algos[:1], settings)[1]
        result = find_agent(algos, env, **common, trainer=options, **hyper)
    else:
        algo, hyper = algorithms_and_settings(algos, settings)
        compare: Any = find_learning_rate if what == "learning_rate" else find_optimizer
        result = compare(algo, env, **rates, **optimizers, **common, trainer=options, **hyper)
    say(result)
    for row in result.errors.itertuples():
        say(f"{row.candidate}, seed {row.seed}: {row.error}")
    if curves is not None:
        write_csv(result.curves, curves)
        say(f"  {curves}")
    say(f"  {result.plot(out)}")
