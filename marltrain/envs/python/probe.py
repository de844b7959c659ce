"""`probe`: build one environment and describe it as an EnvSpec; the adapters by interface; `closed`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from marltrain.core.errors import EnvError, MarlTrainError, SpecError, clean, error_text, text_of, warn
from marltrain.core.layout import Layout
from marltrain.core.spaces import as_choices, without_mask
from marltrain.core.spec import EnvSpec, PlayerSpec
from marltrain.envs.frame_stack import frames_of, remembers
from marltrain.envs.layers import metadata_of, outermost
from marltrain.envs.python.adapter import Adapter
from marltrain.envs.python.global_state import flat_state, state_method
from marltrain.envs.python.last import LastAdapter, has_own_last, unused_last
from marltrain.envs.python.masks import with_masks
from marltrain.envs.python.names import by_text, check_names, text_name
from marltrain.envs.python.parallel import GymnasiumAdapter, ParallelAdapter
from marltrain.envs.python.turns import TurnAdapter
from marltrain.envs.registry import Source, api_of, resolve

_ADAPTERS: dict[str, type[Adapter]] = {"parallel": ParallelAdapter, "turns": TurnAdapter, "gymnasium": GymnasiumAdapter}


class Closable(Protocol):
    """An object with a `close` method."""

    def close(self) -> Any:
        """Release the object's resources."""


Opened = TypeVar("Opened", bound=Closable)


def probe(env: Any, env_args: Mapping[str, Any] | None = None, *, with_state: bool = False) -> EnvSpec:
    """Return the specification of an environment: build one object, reset it once and close it.

    env, env_args: see `resolve`.  with_state: whether to include the shape of the global state, if there is one.

    Raises ConfigError if `env` cannot be resolved, EnvError if it cannot be built or reset, and SpecError for spaces
    that marltrain cannot represent.
    """
    source = resolve(env, env_args)
    if source.game is not None:
        return source.game(**source.arguments).spec(source.name, with_state=with_state)
    built = make_env(source, f"environment {source.name!r}")
    adapter = adapter_of(built)
    with closed(built, source.name):
        _warn_of_unused_last(built, source.name)
        try:
            reproducible = source.reproducible and metadata_of(built).get("reproducible", True) and not remembers(built)
            return _describe(adapter, built, source.name, reproducible=reproducible, with_state=with_state)
        except MarlTrainError:
            raise
        except Exception as error:
            raise EnvError(f"environment {source.name!r} cannot be reset: {fault_text(error)}") from error


def adapter_of(env: Any) -> type[Adapter]:
    """Return the class of the adapter for an environment; raises EnvError for an unknown interface."""
    kind = api_of(env)
    return LastAdapter if kind == "turns" and has_own_last(env) else _ADAPTERS[kind]


@contextmanager
def closed(opened: Opened, name: str) -> Iterator[Opened]:
    """Close `opened` on exit. An error of `close` becomes a warning, because no result depends on it any more."""
    try:
        yield opened
    finally:
        try:
            opened.close()
        except Exception as error:
            warn(f"environment {name!r}: close() raised {error_text(error)}. No result is lost")


def make_env(source: Source, who: str, render_mode: str | None = None) -> Any:
    """Build one environment; raises EnvError, naming it as `who`, if the build raises."""
    try:
        return source.make(render_mode)
    except MarlTrainError:
        raise
    except Exception as error:
        raise EnvError(f"{who} cannot be built: {fault_text(error)}") from error


def fault_text(error: Exception) -> str:
    """Return the text of an error in an environment; errors of other libraries get their type as prefix."""
    own = isinstance(error, EnvError | SpecError)
    return text_of(error) if own else clean(f"{type(error).__name__}: {text_of(error)}")


def _describe(
    kind: type[Adapter], env: Any, name: str, *, reproducible: bool = True, with_state: bool = False
) -> EnvSpec:
    """Return the specification of `env`, after one reset.

    Raises SpecError, with the player's name, for spaces that marltrain cannot represent.
    """
    players = []
    try:
        views = kind.first_views(env)
    except EnvError as error:
        raise EnvError(f"environment {name!r} cannot be reset: {error}") from error
    declared = kind.players_of(env)
    check_names([key for key, *_ in declared])
    for key, observation_space, action_space in declared:
        player = text_name(key)
        try:
            layout, actions = Layout(without_mask(observation_space)[0], frames_of(env)), as_choices(action_space)
        except SpecError as error:
            raise SpecError(f"player {player!r}: {error}") from error
        own, whole = None if isinstance(key, str) else key, None if actions is action_space else action_space
        players.append(PlayerSpec(player, observation_space, actions, layout, key=own, declared=whole))
    if not players:
        raise SpecError(f"{name}: possible_agents is empty: the environment needs a player")
    players = with_masks(players, by_text(views), metadata_of(env))
    _warn_of_unread_masks(env, name, players)
    return EnvSpec.of(
        name,
        players,
        state_shape=_state_shape(env, name) if with_state else None,
        turn_based=kind.takes_turns(env),
        reproducible=reproducible,
    )


def _warn_of_unused_last(env: Any, name: str) -> None:
    """Warn if a wrapper has a `last()` that the wrappers around it do not call."""
    wrapper = None if api_of(env) == "gymnasium" else unused_last(env)
    if wrapper:
        warn(
            f"environment {name!r}: {wrapper} has a last() of its own, which the wrapper around it does not call: "
            "PettingZoo's wrappers compute last() from observe() and the rewards. Its last() has no effect: make "
            f"{wrapper} the outermost wrapper"
        )


def _warn_of_unread_masks(env: Any, name: str, players: Sequence[PlayerSpec]) -> None:
    """Warn if an environment has masks as those of sb3-contrib do, by a method, and no others."""
    method = getattr(outermost(env, "action_masks"), "action_masks", None)
    if callable(method) and not any(player.masked for player in players):
        warn(
            f"environment {name!r} has a method action_masks(), which is not called: every action counts as legal. "
            "Give its value in the infos of reset and step, as info['action_mask']"
        )


def _state_shape(env: Any, name: str) -> tuple[int, ...] | None:
    """Return the shape of the flattened global state, or None if the environment has none.

    Raises EnvError for an error of the environment's own `state`, and for a state that holds no numbers.
    """
    state = state_method(env)
    if state is None:
        return None
    try:
        return flat_state(state).shape
    except NotImplementedError:  # PettingZoo's base classes
        return None
    except MarlTrainError:
        raise
    except Exception as error:
        raise EnvError(
            f"environment {name!r}: the global state (env.state()) cannot be computed after reset: "
            f"{fault_text(error)}. Correct it, or let it raise NotImplementedError if there is no global state"
        ) from error
