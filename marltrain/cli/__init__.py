"""The command line: `marltrain train | test | play | plot | envs`, also as `python -m marltrain`.

This package contains no defaults: they come from the trainer's signature and the algorithms' settings. Each command
imports heavy modules itself.
"""

from marltrain.cli.commands import COMMANDS, main

__all__ = ["COMMANDS", "main"]
