"""`marltrain completion`: a script that completes commands, options and files in a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from marltrain.cli.options import Parser

SHELLS = ("bash", "zsh")
ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"
"""What zsh needs before it reads completions for bash."""
SCRIPT = """_marltrain() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
    case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
        1:*) words={commands} ;;
{options}
    esac
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 || $current == -* ]]; then
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$current")
    else
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")
    fi
}}
complete -o filenames -F _marltrain marltrain
"""


def add_completion_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain completion`."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def script(shell: str, commands: Mapping[str, Sequence[str]]) -> str:
    """Return the script for a shell; commands: the options of each command."""
    cases = [f"        *:{name}) words={shlex.quote(' '.join(options))} ;;" for name, options in commands.items()]
    result = SCRIPT.format(commands=shlex.quote(" ".join(commands)), options="\n".join(cases))
    return ZSH + result if shell == "zsh" else result
