"""Remedies in messages: settings under the names of other libraries, written as the user writes them.

A user of Python writes `network=mt.MLP((64,))`, a user of the command line `--set 'network=MLP((64,))'`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_COMMAND_LINE: ContextVar[bool] = ContextVar("command_line", default=False)
_HIDDEN = frozenset({
    "fc_layers", "fcnet_hiddens", "hidden", "hidden_dim", "hidden_dims", "hidden_layer_sizes", "hidden_layers",
    "hidden_size", "hidden_sizes", "hidden_units", "layer_sizes", "layers", "mlp_sizes", "net_arch", "num_layers",
    "num_units", "policy_kwargs", "units",
})  # fmt: skip
_ACTIVATION = frozenset({"activation", "activation_fn", "activation_function", "fcnet_activation"})
_RECURRENT = frozenset({
    "gru", "is_recurrent", "lstm", "lstm_cell_size", "lstm_hidden_size", "recurrent", "recurrent_policy", "rnn",
    "rnn_hidden_dim", "rnn_hidden_size", "use_gru", "use_lstm", "use_recurrent", "use_recurrent_policy", "use_rnn",
})  # fmt: skip
_CONVOLUTIONS = frozenset({"cnn", "conv_filters", "conv_layers", "features_extractor", "use_cnn"})
_PER_ENVIRONMENT = frozenset({"n_steps", "num_steps", "rollout_fragment_length", "rollout_length"})
"""Names of other libraries for the length of a rollout in each environment."""
_NETWORK = "network"
_PLAIN_SIZES = 64, 64


@contextmanager
def on_command_line() -> Iterator[None]:
    """Write remedies as a user of the command line writes them, within the context."""
    before = _COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _COMMAND_LINE.reset(before)


def written(python: str, command: str) -> str:
    """Return the remedy for the place where the user is: Python code, or arguments of a command."""
    return command if _COMMAND_LINE.get() else python


def unequal_rewards() -> str:
    """Return the remedy for players of a team whose rewards differ."""
    return written(
        'If they cooperate, give the trainer team_reward="mean" or "sum". Rivals are in teams of their own: '
        'make_agents(teams="prefix"), or teams={"name": [players]}, and the same teams as team_reward=',
        "If they cooperate, give --team-reward mean or --team-reward sum. Rivals are in teams of their own: "
        "--teams prefix, or --teams NAME=PLAYER,... for each team, and the same teams as --team-reward",
    )


def setting_written(name: str, value: str) -> str:
    """Return how a setting of agents is written.  value: Python code that a file of a run can hold, too: MLP((64,))."""
    called = value.partition("(")[0].isidentifier()
    return written(f"{name}={'mt.' * called}{value}", f"--set '{name}={value}'")


def setting_in_file(name: str, value: str) -> str:
    """Return how the file of a run holds a setting; see `setting_written`."""
    return f"{name} = '{value}'"


def network_remedy(
    name: Any, value: Any, known: Collection[str], write: Callable[[str, str], str] = setting_written
) -> str:
    """Return a sentence about a name of other libraries for a part of a network; "" for other names.

    value: its value; hidden layers that it gives are those of the sentence.  known: the names of the settings.
    write: returns how a setting is written, of its name and value.
    """
    plain = _plain(name)
    if _NETWORK not in known or plain in known:
        return ""
    if plain in _HIDDEN:
        return f" Hidden layers are given by the network: {write(_NETWORK, f'MLP({_sizes(value)!r})')}."
    if plain in _ACTIVATION:
        network = write(_NETWORK, f'MLP({_PLAIN_SIZES!r}, activation="relu")')
        return f" The activation is given by the network: {network}."
    if plain in _RECURRENT:
        gru, lstm = write(_NETWORK, "GRU()"), write(_NETWORK, "LSTM()")
        return f" A recurrent agent is given by its network: {gru}, or {lstm}."
    if plain in _CONVOLUTIONS:
        return f" Convolutions are given by the network: {write(_NETWORK, 'CNN()')}."
    return ""


def rollout_remedy(name: Any, suggestion: str) -> str:
    """Return a sentence about the unit of `update_freq`, if `suggestion` leads there from another library's name."""
    if _plain(name) not in _PER_ENVIRONMENT or "update_freq" not in suggestion.replace("-", "_"):
        return ""
    return " update_freq counts the env steps of all environments together: 128 steps in each of 16 are 2048."


def _plain(name: Any) -> str:
    return name.lower().lstrip("-").replace("-", "_") if isinstance(name, str) else ""


def _sizes(value: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers that a value gives; two layers of 64 for any other value."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    sizes = tuple(one for one in values if type(one) is int and one > 0)
    return sizes if sizes and len(sizes) == len(values) else _PLAIN_SIZES
