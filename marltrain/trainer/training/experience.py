"""Transitions from runners that users write: what the memory of an agent takes, and where it stores them."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import fields
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.encoding import action_dtype, action_shape, encoded, indexed
from marltrain.core.errors import ConfigError, MarlTrainError, SpecError, shown, warn
from marltrain.core.layout import Array, Obs, Space, arrays_of, map_tree
from marltrain.core.legal import Legal
from marltrain.core.spaces import split_mask
from marltrain.core.spec import PlayerSpec
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.observed import ObservedMemory, ObservedRows
from marltrain.trainer.jobs.messages import Experience
from marltrain.trainer.seats.seats import Seats
from marltrain.trainer.training.run import Run
from marltrain.trainer.updating.scheduler import UpdateScheduler

STORING = 0.1
"""Seconds that storing may take between two collector calls, and the minimum seconds until it goes on."""
PART = 128
"""Transitions that are stored at once."""


def store(run: Run, experience: Experience) -> None:
    """Store the transitions that wait, as many as the time allows; warn of those that agents cannot learn from."""
    if not experience.waiting or time.monotonic() < experience.goes_on_at:
        return
    run.updates.wait()
    until, waiting = time.monotonic() + STORING, deque(experience.waiting)
    while waiting and time.monotonic() < until:
        name, rows = waiting.popleft()
        part = rows.part(slice(PART))
        try:
            memory = memory_of(run, experience, name)
            place = run.context.envs.spec.names.index(name)
            check_rows(run.context.envs.spec.players[place], part)
        except MarlTrainError as error:  # such as those of a handle that was made for an earlier run of this name
            warn(f"{len(rows)} observed transitions are dropped: {error}")
            continue
        memory.add(place, part)
        experience.stored += len(part)
        if len(rows) > PART:
            waiting.appendleft((name, rows.part(slice(PART, None))))
    experience.waiting = list(waiting)
    if waiting:
        experience.goes_on_at = time.monotonic() + STORING


def memory_of(run: Run, experience: Experience, name: str) -> ObservedMemory:
    """Return the memory for the observed transitions of a player, which its group shares.

    At first it is made, and the learners of the group draw from it, too.
    Raises ConfigError for an agent that cannot learn from them, and if the memory is too large.
    """
    context = run.context
    _check(run, name)
    group = context.envs.spec.place[context.envs.spec.names.index(name)][0]
    if group not in experience.memories:
        drawing = [each for each in context.schedulers if each.seated.group == group and not _obstacle(each)]
        needs = [each.seated.learner.needs for each in drawing]
        memory = ObservedMemory(context.envs.spec, group, max(need.capacity for need in needs if need is not None))
        for scheduler in drawing:
            scheduler.draw_also(memory.streams)
        run.apply_masks()
        experience.memories[group] = memory
    return experience.memories[group]


def _check(run: Run, name: str) -> None:
    """Raise ConfigError unless the agent of a player can learn from observed transitions."""
    spec = run.context.envs.spec
    if name not in spec.names:
        raise ConfigError(f"there is no player {name!r}; there are {', '.join(spec.names)}")
    place = spec.names.index(name)
    found = [scheduler for scheduler in run.context.schedulers if _trains(scheduler.seated, place)]
    reason = _obstacle(found[0]) if found else "it never learns"
    if spec.players[place].layout.stack > 1:
        reason = "its images are stacked frames"
    if reason:
        raise ConfigError(
            f"the agent of {name!r} cannot learn from observed transitions: {reason}. Agents of marltrain that draw "
            "transitions uniformly can, such as dqn or sac"
        )


def rows_of(
    player: PlayerSpec, observation: Any, action: Any, reward: Any, next_observation: Any, terminated: Any, legal: Any,
    next_legal: Any,
) -> ObservedRows:  # fmt: skip
    """Return one transition, or B transitions with a leading axis, as arrays; see `AgentHandle.observe`.

    Raises SpecError for values that do not fit the player's spaces, or each other.
    """
    space = player.action_space
    obs, mask, batched = encoded(player.layout, observation, legal, space)
    rows = len(arrays_of(obs)[0])
    ended = _column("terminated", terminated, rows, batched, np.bool_)
    following, next_mask = split_mask(next_observation)
    next_obs, next_batched = player.layout.encode(following)
    next_obs = next_obs if next_batched else map_tree(lambda array: array[None], next_obs)
    if next_batched != batched or len(arrays_of(next_obs)[0]) != rows:
        raise SpecError(f"observe: there are {rows} observations, and next_observation holds another number")
    allowed = _next_legal(Legal(space), next_mask if next_legal is None else next_legal, ended, batched, mask)
    if player.masked and (mask is None or allowed is None):
        raise SpecError(f"observe: {player.name!r} has legal actions: give legal= and next_legal=")
    known = (mask, allowed) if player.masked else (None, None)
    given = _column("reward", reward, rows, batched, np.float32)
    if not np.isfinite(given).all():
        raise SpecError("observe: rewards must be finite")
    if not (_finite(obs) and _finite(next_obs)):
        raise SpecError("observe: observations must be finite")
    return ObservedRows(obs, known[0], _actions(space, action, rows, batched), given, ended, next_obs, known[1])


def check_rows(player: PlayerSpec, rows: ObservedRows) -> None:
    """Raise SpecError unless transitions fit a player: arrays, legal actions and finite values.

    `rows_of` makes only such transitions; those of a handle for an earlier run of the same name may have other spaces.
    """
    space = player.action_space
    choices = Legal(space)
    legal = np.zeros((0, choices.width), bool) if player.masked else None
    obs = player.layout.empty((0,))
    action: Array = np.zeros((0, *action_shape(space)), action_dtype(space))
    like = ObservedRows(obs, legal, action, np.zeros(0, np.float32), np.zeros(0, bool), obs, legal)
    own = f"those of {player.name!r} in this run"
    for field in fields(ObservedRows):
        found, expected = (_form(getattr(each, field.name)) for each in (rows, like))
        if found != expected:
            raise SpecError(f"their {field.name} is {found}, {own} is {expected}")
    arrays = [array for field in fields(rows) for array in _leaves(getattr(rows, field.name))]
    if len({len(array) for array in arrays}) > 1:
        raise SpecError(f"{own} have arrays of equal length, got {[len(array) for array in arrays]}")
    if not all(choices.playable(array).all() for array in (rows.legal, rows.next_legal) if array is not None):
        raise SpecError(f"{own} have a legal action each")
    if not (
        _finite(rows.obs) and _finite(rows.next_obs) and np.isfinite(rows.reward).all() and _in(space, rows.action)
    ):
        raise SpecError(f"{own} have finite values, and actions of {space}")


def _form(tree: Any) -> str:
    """Return the shapes without the leading axis and the dtypes of arrays, in words."""
    return str(map_tree(lambda array: f"{array.shape[1:]} {array.dtype}", tree))


def _leaves(tree: Any) -> list[Array]:
    return [] if tree is None else arrays_of(tree)


def _finite(obs: Obs) -> bool:
    return all(np.isfinite(array).all() for array in arrays_of(obs))


def _in(space: Space, action: Array) -> bool:
    """Return whether actions in the loop's format are elements of a space; those of a Box need only be finite."""
    if isinstance(space, spaces.Box):
        return bool(np.isfinite(action).all())
    most = space.nvec.reshape(-1) if isinstance(space, spaces.MultiDiscrete) else getattr(space, "n", 0)
    return bool(((action >= 0) & (action < most)).all())


def _next_legal(choices: Legal, legal: Any, ended: Array, batched: bool, like: Array | None) -> Array | None:
    """Return the next legal actions [B, A]; all are legal where no action follows."""
    if legal is None or like is None:
        return None
    given = np.array(choices.joined(legal), bool)
    allowed = given if batched else given[None]
    if allowed.shape != like.shape:
        raise SpecError(f"observe: next_legal has shape {allowed.shape}, legal has {like.shape}")
    allowed[ended] = True
    if not choices.playable(allowed).all():
        raise SpecError("observe: next_legal: no action is legal, and terminated is False; it must allow at least one")
    return allowed


def _column(name: str, values: Any, rows: int, batched: bool, kind: type) -> Array:
    """Return values, one for each row, as [B]."""
    array = np.asarray(values)
    if array.shape != ((rows,) if batched else ()) or array.dtype.kind not in "biuf":
        raise SpecError(f"observe: {name} must be one value for each of {rows} transitions, got {shown(values)}")
    return np.array(array.reshape(rows), kind)


def _actions(space: Space, action: Any, rows: int, batched: bool) -> Array:
    """Return the environment's actions in the loop's format, [B, ...]."""
    array = np.asarray(action) if batched else np.asarray(action)[None]
    if array.shape[:1] != (rows,) or not all(space.contains(_element(space, one)) for one in array):
        raise SpecError(
            f"observe: action must be one element of {space} for each of {rows} transitions, got {shown(action)}"
        )
    flat = indexed(space, array.reshape(rows, *action_shape(space)))
    return np.array(flat, action_dtype(space))


def _element(space: Space, one: Any) -> Any:
    return one.astype(space.dtype) if isinstance(space, spaces.Box) else one


def _trains(seated: Seats, player: int) -> bool:
    """Return whether a learner trains the agent of a player."""
    return any(bool((part.players == player).any()) for part in seated.acting)


def _obstacle(scheduler: UpdateScheduler) -> str:
    """Return why the agents of a scheduler cannot learn from observed transitions; "" if they can."""
    learner = scheduler.seated.learner
    needs: Needs | None = learner.needs
    if not isinstance(learner, AlgorithmLearner) or needs is None:
        return "it is trained with a team, or is not an agent of marltrain's algorithms"
    replay = needs.replay
    reasons = {
        "it learns on-policy": needs.on_policy,
        "it learns from what its own acts return, as recurrent networks do": bool(needs.columns or needs.sequence),
        "it reads a global state": needs.state is not None,
        "it reads the actions of others": needs.joint_actions > 0,
        "its memory has priorities or ages": replay is not None and not replay.uniform,
        "its memory relabels goals": replay is not None and bool(replay.with_goals),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
