"""Read and write the decisions of a Minari dataset (https://minari.farama.org)."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean, error_text, shown
from marltrain.core.extras import imported
from marltrain.core.layout import Array

MASK = "action_mask"
"""Key of the legal actions [T + 1, A] among an episode's infos, as in PettingZoo."""


def rows_of_dataset(dataset: Any, episodes: int | None) -> dict[str, Any]:
    """Return the arguments of `Demonstrations.from_arrays` for the first `episodes` episodes of a dataset, or for all.

    dataset: see `Demonstrations.from_minari`.  An episode holds one observation more than actions, its last one.
    A termination or truncation before the last step of an episode ends the decisions there, too.
    Raises ConfigError for legal actions of some episodes only, and for an episode whose arrays have other lengths.
    """
    minari = _minari()
    if isinstance(dataset, str):
        dataset = _local(minari, dataset)
    if not isinstance(dataset, minari.MinariDataset):
        raise ConfigError(f"dataset must be a minari.MinariDataset or the name of a local one, got {shown(dataset)}")
    total = int(dataset.total_episodes)
    if episodes is not None and not (type(episodes) is int and 1 <= episodes <= total):
        raise ConfigError(f"episodes must be from 1 to the dataset's {total:,}, or None for all, got {shown(episodes)}")
    chosen = range(total if episodes is None else episodes)
    found = [episode for episode in dataset.iterate_episodes(chosen) if len(episode.actions)]
    if not found:
        raise ConfigError(f"dataset {shown(dataset.id)} holds no steps: give one with demonstrations")
    for episode in found:
        _check_lengths(dataset.id, episode)
    terminated, truncated = (
        np.concatenate([np.asarray(getattr(episode, name), bool) for episode in found])
        for name in ("terminations", "truncations")
    )
    last = np.concatenate([np.arange(len(episode.actions)) == len(episode.actions) - 1 for episode in found])
    return {
        "observation_space": dataset.observation_space,
        "action_space": dataset.action_space,
        "observation": _joined([_each(episode.observations, lambda a: a[:-1]) for episode in found]),
        "next_observation": _joined([_each(episode.observations, lambda a: a[1:]) for episode in found]),
        "action": np.concatenate([episode.actions for episode in found]),
        "ends": last | terminated | truncated,
        "legal": _legal(dataset.id, found),
        "reward": np.concatenate([episode.rewards for episode in found]).astype(np.float32),
        "terminated": terminated,
    }


class DecidedRows(NamedTuple):
    """Decisions in the environment's format: arrays [N, ...], or mappings and tuples of these for observations.

    seen, after: the observation of each decision, and the one after it.  legal: [N, A] bool or None.
    """

    seen: Any
    after: Any
    action: Array
    reward: Array
    ends: Array
    terminated: Array
    legal: Array | None


def write_dataset(name: str, observation_space: Any, action_space: Any, rows: DecidedRows, details: Any) -> Any:
    """Write decisions, whose last one ends an episode, as a local dataset; see `Demonstrations.to_minari`.

    Images are stored as they are unless `details` holds jpeg_encoding=True. A dataset that cannot be made is removed.
    """
    minari = _minari()
    _check_free(minari, name)
    kept = inspect.signature(minari.create_dataset_from_buffers).parameters
    exact = {"jpeg_encoding": False} if "jpeg_encoding" in kept else {}  # JPEG changes the values of images
    if unknown := [key for key in details if key not in kept]:
        raise ConfigError(f"to_minari: create_dataset_from_buffers has no argument {unknown[0]!r}."
                          f"{did_you_mean(unknown[0], list(kept))}")  # fmt: skip
    try:
        return minari.create_dataset_from_buffers(
            name, _episodes(rows), observation_space=observation_space, action_space=action_space, **exact | details
        )
    except Exception as error:  # of Minari, of the package that stores, or of the disk
        remove_dataset(name)
        raise ConfigError(f"Minari dataset {name!r} cannot be made: {error_text(error)}") from error


def _check_free(minari: ModuleType, name: str) -> None:
    """Raise ConfigError for a name that Minari does not accept, or that is taken."""
    from minari.dataset.minari_dataset import parse_dataset_id

    try:
        if not isinstance(name, str):
            raise ValueError(f"a name is a text such as 'games/own-v0', got {shown(name)}")
        parse_dataset_id(name)
        if minari.storage.get_dataset_path(name).exists():
            raise ValueError("there is one already: choose another name or version")
    except ValueError as error:
        raise ConfigError(f"Minari dataset {name!r} cannot be made: {error_text(error)}") from error


def remove_dataset(name: str) -> None:
    """Remove the files of a local dataset, if there are some."""
    shutil.rmtree(_minari().storage.get_dataset_path(name), ignore_errors=True)


def _episodes(rows: DecidedRows) -> list[Any]:
    """Return the episodes as Minari's buffers."""
    from minari.data_collector import EpisodeBuffer

    episodes, start = [], 0
    for number, stop in enumerate((np.flatnonzero(rows.ends) + 1).tolist()):
        part, last = slice(start, stop), slice(stop - 1, stop)
        seen, after = _rows(rows.seen, part), _rows(rows.after, last)
        terminated = rows.terminated[part]
        infos = {}
        if rows.legal is not None:  # one more, as of observations: all legal at the end
            infos = {MASK: np.concatenate([rows.legal[part], np.ones_like(rows.legal[last])]).astype(np.int8)}
        episodes.append(EpisodeBuffer(
            id=number, observations=_joined([seen, after]), actions=rows.action[part],
            rewards=rows.reward[part].tolist(), terminations=terminated.tolist(),
            truncations=(rows.ends[part] & ~terminated).tolist(), infos=infos,
        ))  # fmt: skip
        start = stop
    return episodes


def _rows(observations: Any, part: slice) -> Any:
    return _each(observations, lambda array: array[part])


def _check_lengths(name: str, episode: Any) -> None:
    """Raise ConfigError unless the arrays of an episode of T actions have T rows, and its observations T + 1."""
    steps = len(episode.actions)
    expected = {"rewards": steps, "terminations": steps, "truncations": steps, "observations": steps + 1}
    rows = {what: len(getattr(episode, what)) for what in ("rewards", "terminations", "truncations")}
    leaves: list[int] = []
    _each(episode.observations, lambda array: leaves.append(len(array)))
    rows["observations"] = next((count for count in leaves if count != steps + 1), steps + 1)
    if (mask := _mask_of(episode)) is not None:
        rows[f"info {MASK!r}"], expected[f"info {MASK!r}"] = len(mask), steps + 1
    for what, count in rows.items():
        if count != expected[what]:
            raise ConfigError(
                f"dataset {name!r}, episode {episode.id}: {count:,} rows of {what}, expected {expected[what]:,} for "
                f"{steps:,} actions. Mend the episode, or leave it out: dataset.filter_episodes(...)"
            )


def _legal(name: str, found: Sequence[Any]) -> Array | None:
    """Return the legal actions [N, A] of episodes, or None if none has any; raises ConfigError if only some have."""
    masks = [_mask_of(episode) for episode in found]
    given = [mask[:-1] for mask in masks if mask is not None]
    if given and len(given) < len(found):
        first = next(episode for episode, mask in zip(found, masks, strict=True) if mask is None)
        raise ConfigError(
            f"dataset {name!r}: {len(given):,} of {len(found):,} episodes have the info {MASK!r}, the legal actions, "
            f"and episode {first.id} has none: all or none must have it. Add it to the others, or leave them out: "
            f"dataset.filter_episodes(lambda episode: {MASK!r} in episode.infos)"
        )
    return np.concatenate(given) if given else None


def _mask_of(episode: Any) -> Array | None:
    """Return the legal actions [T + 1, A] of an episode, or None."""
    mask = episode.infos.get(MASK) if isinstance(episode.infos, dict) else None
    return None if mask is None else np.asarray(mask)


def _minari() -> ModuleType:
    found: ModuleType = imported("minari", "minari", "A dataset of Minari")
    return found


def _local(minari: ModuleType, name: str) -> Any:
    known = list(minari.list_local_datasets())
    if name not in known:
        raise ConfigError(
            f"there is no local Minari dataset {name!r}.{did_you_mean(name, known)} There are: "
            f"{', '.join(known) or 'none'}. Download one: minari download NAME"
        )
    try:
        return minari.load_dataset(name)
    except Exception as error:  # Minari's own readers
        raise ConfigError(f"Minari dataset {name!r} cannot be loaded: {error_text(error)}") from error


def _each(observations: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(observations, dict):
        return {name: _each(inner, function) for name, inner in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_each(inner, function) for inner in observations)
    return function(np.asarray(observations))


def _joined(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, dict):
        return {name: _joined([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple):
        return tuple(_joined([part[i] for part in parts]) for i in range(len(first)))
    return np.concatenate(parts)
