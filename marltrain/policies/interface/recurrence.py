"""Recurrent networks in acting and learning: their carries as columns, and the sequences of a rollout.

The carry with which each decision was made is stored beside it. Gradients flow back over sequences: a batch consists of
blocks of `sequence_length` rows. The first row of a block starts from its stored carry, as does a row in it that does
not follow the one before, such as the first of an episode. On-policy, the networks that learn are those that acted, so
the stored carries are exact; for older rows they are the "stored state" of R2D2 (Kapturowski et al. 2019). Its burn-in
brings them up to date: the networks that learn evaluate the rows before a sequence first, without gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, arrays_of
from marltrain.core.settings import setting
from marltrain.policies.batches.batch import Rollout, SequenceTransitions
from marltrain.policies.batches.tensor_batch import memory_of
from marltrain.policies.memory.config import Replay
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.networks.specs import LONGEST, NetworkDefinition
from marltrain.policies.ops import Ops

Definitions = Mapping[str, NetworkDefinition]


@dataclass(frozen=True, kw_only=True)
class BurnIn:
    """Setting of off-policy algorithms with recurrent networks."""

    burn_in: int = setting(0, doc="rows of a sequence, its first, that only bring the carries of recurrent networks up "
                           "to date and are not learned from", low=0, high=LONGEST)  # fmt: skip


def carries_of(networks: Definitions) -> dict[str, Column]:
    """Return the columns of the carries by the names of the recurrent networks; none without such networks."""
    return {name: Column((result.carry_width,)) for name, result in networks.items() if result.carry_width}


def column_of(network: str, carries: Column) -> str:
    """Return the name of the extra in which the carries of a network are stored.

    It holds their width, because agents of one group, whose rows have the same columns, may have different networks.
    """
    return f"carry/{network}/{carries.shape[0]}"


def length_of(networks: Definitions) -> int:
    """Return the length of the sequences; 0 without recurrent networks."""
    return max((result.spec.sequence_length for result in networks.values() if result.carry_width), default=0)


def burn_in_of(networks: Definitions) -> int:
    """Return the number of rows of the burn-in, which is that of all recurrent networks."""
    return max((result.burn_in for result in networks.values()), default=0)


def needs_of(needs: Needs, networks: Definitions) -> Needs:
    """Return the needs of an algorithm whose networks may be recurrent; unchanged if none of them is.

    The carries of each recurrent network become a column, [carry width] float32, and batches consist of blocks of
    `sequence_length` rows. Off-policy, samples are then sequences of this length, of which
    `NetworkDefinition.burn_in` rows are a burn-in.

    needs: those without recurrent networks.  networks: the result of `Algorithm.networks`, by name.
    """
    stored = {column_of(name, column): column for name, column in carries_of(networks).items()}
    length = length_of(networks)
    return replace(
        needs, columns={**needs.columns, **stored}, block=length, burn_in=burn_in_of(networks) if length else 0,
        sequence=needs.sequence if needs.on_policy else length or needs.sequence,
    )  # fmt: skip


def check_draws(who: str, needs: Needs) -> None:
    """Raise ConfigError for an off-policy memory from which recurrent networks cannot draw sequences."""
    replay = needs.replay or Replay()
    if needs.on_policy or not needs.block:
        return
    unfit = {
        "n_step": needs.n_step > 1, "memory=Replay(prioritized)": replay.prioritized is not None,
        "memory=Replay(window, effective_share, half_life, clear_every)": replay.ages,
        "memory=Replay(hindsight, triplets)": bool(replay.with_goals),
    }  # fmt: skip
    for what, given in unfit.items():
        if given:
            raise ConfigError(
                f"{who}: recurrent networks learn from sequences of one-step transitions, whose first rows are drawn "
                f"uniformly: leave {what} out, or take MLP() or CNN()"
            )


def check_recurrent(who: str, networks: Definitions, supported: tuple[str, ...], strategy: object) -> None:
    """Raise ConfigError for recurrent networks that an algorithm cannot give carries, or of different sequences.

    Also for a burn-in without recurrent networks, or as long as the sequences.

    supported: `Algorithm.recurrent`.  strategy: that of the backend.
    """
    recurrent = {name: result.spec for name, result in networks.items() if result.carry_width}
    for name, spec in recurrent.items():
        if name not in supported:
            raise ConfigError(
                f"{who}: its network {name!r} cannot be recurrent, got {spec}. Take MLP() or CNN() for it, stacked "
                "frames (mt.FrameStack), or an algorithm with recurrent networks, such as ppo, dqn, qmix or sac (docs: "
                "Recurrent policies)"
            )
    lengths = {name: spec.sequence_length for name, spec in recurrent.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigError(
            f"{who}: its recurrent networks learn from the same sequences, and sequence_length differs: {lengths}"
        )
    burn_in = burn_in_of(networks)
    if burn_in and not recurrent:
        raise ConfigError(f"{who}: burn_in={burn_in} is for recurrent networks: leave it out, or take GRU() or LSTM()")
    if burn_in and burn_in >= length_of(networks):
        raise ConfigError(
            f"{who}: burn_in={burn_in} leaves no row to learn from in sequences of {length_of(networks)} rows: take "
            "fewer, or a larger sequence_length"
        )
    if recurrent and strategy is not None:
        raise ConfigError(
            f"{who}: {strategy} splits a minibatch by rows, and recurrent networks learn from sequences: leave out "
            "strategy=, or take MLP() or CNN()"
        )


def sequence_columns(batch: Rollout | SequenceTransitions, networks: Definitions) -> dict[str, Any]:
    """Return the columns that losses need to call recurrent networks: `carry` by network, and `begins` [K, B] bool.

    The rows B are a multiple of the sequences' length; see `Needs.block`.
    """
    begins = batch.begins.copy()
    begins[:, :: length_of(networks)] = True
    carries = {name: batch.extras[column_of(name, column)] for name, column in carries_of(networks).items()}
    return {"carry": carries, "begins": begins}


def memory_after(net: Any, batch: Any, network: str, *vectors: Any) -> tuple[Any, ...]:
    """Return the inputs of a network beside its others, for what follows the rows: (carry after the row,) or ().

    net: the network, or its target network, which starts from the stored carries of the network, too.
    vectors: its inputs beside the observations at the rows.
    """
    memory = memory_of(batch, network)
    return (net(batch.obs, *vectors, *memory)[-1],) if memory else ()


def memory_before(ops: Ops, net: Any, batch: Any, network: str, *vectors: Any) -> tuple[Any, ...]:
    """Return the same inputs for the rows with other vectors than those of the memory: (carry before the row,) or ().

    The carries come from the rows before with `vectors`, such as the actions taken.
    """
    after = memory_after(net, batch, network, *vectors)
    if not after:
        return ()
    carry, begins = memory_of(batch, network)
    (following,) = after
    return (ops.where(begins[..., None], carry, ops.concat([following[:, :1], following[:, :-1]], 1)),)


def carries_after(carry: Array, batch: Rollout) -> Array:
    """Return the carries with which `boot_obs` are evaluated, [K, M, C]: the next ones of the rows before them.

    carry: [K, B, C], the next carry of each row.
    """
    count = arrays_of(batch.boot_obs)[0].shape[1]
    rows = np.argsort(batch.boot < 0, axis=1, kind="stable")[:, :count]  # padding follows the rows
    after: Array = np.take_along_axis(carry, rows[..., None], 1)
    return after
