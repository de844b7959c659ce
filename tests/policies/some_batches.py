"""Batches as the memory would give them, made up: ragged, padded, with ends of both kinds."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Layout, Obs, map_tree
from marltrain.policies.batches.batch import (
    Batch,
    ReservoirTransitions,
    Rollout,
    SequenceTransitions,
    TeamBatch,
    TeamRollout,
    TeamRows,
    Transitions,
    TripletTransitions,
)

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (9, 8, 3), np.uint8)
PICTURE_AND_VECTOR = spaces.Dict(
    {"place": spaces.Box(-1, 1, (2,), np.float32), "view": spaces.Box(0, 255, (8, 9), np.uint8)}
)
_PLACE = spaces.Box(-1, 1, (2,), np.float32)
GOALS = spaces.Dict({"observation": VECTOR, "achieved_goal": _PLACE, "desired_goal": _PLACE})
"""Observations with goals; a vector of achieved goal, desired goal and `VECTOR`."""


def some_obs(rng: np.random.Generator, space: Any, leading: tuple[int, ...]) -> Obs:
    """Draw observations [*leading, *O] of a space, or of a layout, as arrays."""
    layout = space if isinstance(space, Layout) else Layout(space)
    result = {
        name: rng.integers(256, size=(*leading, *shape)).astype(np.uint8) if dtype == np.uint8
        else rng.uniform(-1, 1, (*leading, *shape)).astype(np.float32)
        for name, (shape, dtype) in layout.shapes.items()
    }  # fmt: skip
    return result if len(result) > 1 else next(iter(result.values()))


def some_observations(rng: np.random.Generator, space: Any, rows: int) -> Any:
    """Draw observations [rows, ...] in the format of an environment with this space."""
    if isinstance(space, spaces.Dict):
        return {name: some_obs(rng, part, (rows,)) for name, part in space.items()}
    return some_obs(rng, space, (rows,))


def some_actions(rng: np.random.Generator, space: Any, leading: tuple[int, ...]) -> np.ndarray:
    """Draw actions [*leading, ...] as the loop holds them."""
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=leading)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(space.nvec.reshape(-1), size=(*leading, space.nvec.size))
    return rng.uniform(-1, 1, (*leading, int(np.prod(space.shape)))).astype(np.float32)


def some_legal(rng: np.random.Generator, action: np.ndarray, choices: int) -> np.ndarray:
    """Draw masks that allow at least `action`."""
    return (rng.random((*action.shape, choices)) < 0.6) | (action[..., None] == np.arange(choices))


def some_probs(action: np.ndarray, choices: int, legal: np.ndarray | None) -> np.ndarray:
    """Draw probabilities of the legal actions [*leading, A], from a stream of their own."""
    weight = np.random.default_rng(len(action.reshape(-1))).uniform(0.1, 1.0, (*action.shape, choices))
    weight = weight if legal is None else weight * legal
    return (weight / weight.sum(-1, keepdims=True)).astype(np.float32)


def some_rollout(
    rng: np.random.Generator,
    space: Any,
    action_space: Any,
    counts: list[int],
    *,
    gamma: float = 0.97,
    masked: bool = False,
) -> Rollout:
    """Make a rollout of `counts[k]` rows for agent k: pieces of about 4 rows, ended, cut by a limit or still open."""
    agents, rows, boots = len(counts), max(counts), max(counts)
    valid = np.arange(rows) < np.array(counts)[:, None]
    last = np.arange(rows) == np.array(counts)[:, None] - 1
    cut = (rng.random((agents, rows)) < 0.25) | last | ~valid
    fate = rng.integers(3, size=(agents, rows))  # of a cut row: terminated, truncated, open
    terminated, truncated = cut & (fate == 0), cut & (fate == 1)
    number = np.cumsum(cut & valid, 1) - 1
    action = some_actions(rng, action_space, (agents, rows))
    discrete = isinstance(action_space, spaces.Discrete)
    log_prob = -np.log(float(action_space.n)) if discrete else -1.5
    extras = {"log_prob": (log_prob + 0.3 * rng.standard_normal((agents, rows))).astype(np.float32)}
    if isinstance(action_space, spaces.Box):
        extras["raw"] = rng.standard_normal(action.shape).astype(np.float32)
    obs = some_obs(rng, space, (agents, rows))
    legal = some_legal(rng, action, int(action_space.n)) if masked else None
    if discrete:
        extras["probs"] = some_probs(action, int(action_space.n), legal)
    return Rollout(
        obs=obs,
        legal=legal,
        action=action,
        reward=(rng.standard_normal((agents, rows)) * valid).astype(np.float32),
        discount=np.where(valid & ~terminated, gamma, 0.0).astype(np.float32),
        weight=valid.astype(np.float32),
        extras=extras,
        cut=cut,
        truncated=truncated & valid,
        boot=np.where(cut & valid, number, np.where(valid, -1, 0)),
        boot_obs=some_obs(rng, space, (agents, boots)),
        boot_legal=np.ones((agents, boots, int(action_space.n)), bool) if masked else None,
    )


def some_transitions(
    rng: np.random.Generator, space: Any, actions: Any, agents: int, rows: int, *, n_step: int = 1, masked: bool = False
) -> Transitions:
    """Make `rows` n-step transitions for each agent, a fifth of them terminated.

    actions: the action space, or the number of Discrete actions.
    """
    action_space = spaces.Discrete(actions) if isinstance(actions, int) else actions
    choices = int(action_space.n) if isinstance(action_space, spaces.Discrete) else 1
    action = some_actions(rng, action_space, (agents, rows))
    steps = rng.integers(1, n_step + 1, size=(agents, rows))
    following = rng.integers(choices, size=(agents, rows))
    return Transitions(
        obs=some_obs(rng, space, (agents, rows)),
        legal=some_legal(rng, action, choices) if masked else None,
        action=action,
        reward=(2 * rng.standard_normal((agents, rows))).astype(np.float32),
        discount=np.where(rng.random((agents, rows)) < 0.2, 0.0, 0.97**steps).astype(np.float32),
        weight=np.ones((agents, rows), np.float32),
        extras={},
        next_obs=some_obs(rng, space, (agents, rows)),
        next_legal=some_legal(rng, following, choices) if masked else None,
        cells=np.zeros((agents, rows), np.int64),
    )


def with_states(rng: np.random.Generator, batch: Any, learner: Any) -> Any:
    """Return the batch with global states and the other players' actions, if the learner reads them."""
    if learner.needs.joint_actions:
        others = rng.random((*batch.weight.shape, learner.needs.joint_actions)) < 0.3
        batch = replace(batch, others=others.astype(np.float32))
    if learner.needs.state is None:
        return batch
    names = {"state": batch.weight, **({"boot_state": batch.boot} if isinstance(batch, Rollout) else
                                       {"next_state": batch.weight})}  # fmt: skip
    size = (learner.needs.state.size,)
    return replace(batch, **{name: rng.uniform(-1, 1, like.shape + size).astype(np.float32)
                             for name, like in names.items()})  # fmt: skip


def some_team(rng: np.random.Generator, parts: Any, seats: Any, rows: int, *, masked: bool = True) -> TeamBatch:
    """Make `rows` batch steps of a team, with rows of the agents of each learner in `parts` and their numbers of seats.

    A tenth of the players is absent at a batch step, or has no value after it. They are a rollout for on-policy agents.
    """
    result = []
    for part, held in zip(parts, seats, strict=True):
        own = part.algorithm
        given = some_transitions(rng, own.layout, own.action_space, part.num_agents, held * rows, masked=masked)
        present, following = rng.random((2, *given.weight.shape)) < 0.9
        result.append(TeamRows(**{**vars(given), "weight": present.astype(np.float32)}, present=present,
                             next_present=following))  # fmt: skip
    reward = rng.standard_normal((1, rows)).astype(np.float32)
    discount = np.where(rng.random((1, rows)) < 0.2, 0.0, 0.97).astype(np.float32)
    batch = TeamBatch(result, reward, discount, np.ones((1, rows), np.float32))
    need = parts[0].needs.state
    if need is not None:
        batch.state, batch.next_state = rng.uniform(-1, 1, (2, 1, rows, need.size)).astype(np.float32)
    if not parts[0].needs.on_policy:
        return batch
    for part, own in zip(parts, result, strict=True):
        own.extras = {name: rng.standard_normal((*own.weight.shape, *column.shape), np.float32)
                      for name, column in part.needs.columns.items()}  # fmt: skip
    cut = (rng.random((1, rows)) < 0.2) | (discount == 0) | (np.arange(rows) == rows - 1)
    return TeamRollout(**vars(batch), cut=cut)


def with_carries(rng: np.random.Generator, batch: Any, learner: Any) -> Any:
    """Return a batch with the carries of recurrent networks, padded to whole blocks; others unchanged.

    Transitions are in sequences of about 4 rows.
    """
    needs = learner.needs
    columns = {name: column for name, column in needs.columns.items() if name.startswith("carry/")}
    if not columns:
        return batch
    missing = -batch.weight.shape[1] % needs.block

    def padded(name: str, value: Any) -> Any:
        if value is None or name.startswith("boot_"):
            return value
        return map_tree(lambda array: np.concatenate([array, array[:, :missing]], 1), value)

    result = replace(batch, **{f.name: padded(f.name, getattr(batch, f.name)) for f in fields(batch)})
    rows = batch.weight.shape[1]
    result.weight[:, rows:] = 0
    if isinstance(result, Rollout):
        result.cut[:, rows:], result.boot[:, rows:] = True, 0
    else:
        result = SequenceTransitions(**vars(result), begins=rng.random(result.weight.shape) < 0.25)
        result.begins[:, 0] = result.begins[:, rows:] = True
    for name, column in columns.items():
        result.extras[name] = 0.5 * rng.standard_normal((*result.weight.shape, *column.shape), np.float32)
    return result


def some_triplets(
    rng: np.random.Generator, space: Any, actions: Any, agents: int, rows: int, *, masked: bool = False
) -> TripletTransitions:
    """Make `rows` transitions with triplets for each agent, over offsets 1 to 4; see `some_transitions`."""
    result = some_transitions(rng, space, actions, agents, rows, masked=masked)
    far = some_transitions(rng, space, actions, agents, rows, masked=masked)
    offset = rng.integers(1, 5, size=(agents, rows))
    near = np.where(offset == 1, 0, rng.integers(1, np.maximum(offset, 2)))
    return TripletTransitions(
        **vars(result), goal_obs=some_obs(rng, space, (agents, rows)), near_obs=some_obs(rng, space, (agents, rows)),
        far_obs=far.obs, far_legal=far.legal, far_action=far.action,
        near_offset=near.astype(np.float32), offset=offset.astype(np.float32),
    )  # fmt: skip


def some_replayed(
    rng: np.random.Generator, algorithm: Any, agents: int, rows: int, *, n_step: int = 1, masked: bool = False
) -> Transitions:
    """Make a batch of an off-policy algorithm: transitions, with triplets or with decisions of a reservoir."""
    layout, space = algorithm.layout, algorithm.action_space
    if algorithm.reads_triplets:
        return some_triplets(rng, layout, space, agents, rows, masked=masked)
    result = some_transitions(rng, layout, space, agents, rows, n_step=n_step, masked=masked)
    if not algorithm.needs().reservoir:
        return result
    kept = some_transitions(rng, layout, space, agents, rows, masked=masked)
    weight = np.full((agents, rows), 1 / rows, np.float32)
    return ReservoirTransitions(
        **vars(result), kept_obs=kept.obs, kept_legal=kept.legal, kept_action=kept.action, kept_weight=weight
    )


def of_agent(batch: Any, k: int, rows: int | None = None) -> Any:
    """Return agent k's part of a batch, [1, rows, ...]: without its padding when `rows` is its number of rows."""

    def part(name: str, value: Any) -> Any:
        if value is None:
            return None
        stop = None if name.startswith("boot_") else rows
        if isinstance(value, dict):
            return {key: inner[k : k + 1, :stop] for key, inner in value.items()}
        return map_tree(lambda array: array[k : k + 1, :stop], value)

    return replace(batch, **{f.name: part(f.name, getattr(batch, f.name)) for f in fields(batch)})


def weight_of(batch: Batch, weight: np.ndarray) -> Any:
    """Return the batch with other weights."""
    return replace(batch, weight=weight)
