"""`marltrain envs`: list the environments that can be named."""

from __future__ import annotations

import re
from typing import Any

from marltrain.cli.options import Parser
from marltrain.cli.output import say
from marltrain.core.errors import ConfigError, did_you_mean


def add_envs_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain envs`."""
    parser.add_argument("filter", nargs="?", metavar="FILTER", help="show only names that contain this")


def envs(options: dict[str, Any]) -> None:
    """Print the names of environments, one in each line; raises ConfigError if none contains the filter."""
    from marltrain.envs import list_environments

    names, wanted = list_environments(), options.get("filter", "")
    found = [name for name in names if wanted.lower() in name.lower()]
    if not found:
        words = {word for name in names for word in re.split(r"[/_-]", name)}
        raise ConfigError(f"no environment's name contains {wanted!r}.{did_you_mean(wanted, words)}")
    say("\n".join(found))
