"""Environment names and construction: "namespace/name", "module:attribute", a class or a function."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import pkgutil
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import gymnasium
import numpy as np
import pettingzoo
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from marltrain.core.errors import ConfigError, EnvError, did_you_mean, shown
from marltrain.core.extras import extra_of, install, is_installed
from marltrain.core.remedies import written
from marltrain.envs import jaxmarl
from marltrain.envs.arguments import accepted_arguments, check_arguments
from marltrain.envs.gymnasium_names import PREFIX, of_known_module, registered, split_module, suggestion, with_module
from marltrain.envs.native.catalog import GAMES, find
from marltrain.envs.native.game import Game
from marltrain.envs.native.objects import game_object
from marltrain.envs.openspiel import argument_names, game_names, openspiel_env
from marltrain.envs.python.players import by_player

_VERSIONED = re.compile(r"[a-zA-Z_]\w*_v\d+")
_OPTIONAL = {
    "mpe2": ("mpe2", _VERSIONED), "openspiel": ("pyspiel", re.compile(r"\w+")),
    jaxmarl.NAMESPACE: (jaxmarl.MODULE, re.compile("|".join(jaxmarl.GAMES))),
}  # fmt: skip
"""Namespaces of optional packages: the module, and the form of the names of its games."""
_GYMNASIUM_MAKES = frozenset({"max_episode_steps", "additional_wrappers"})
"""Arguments of `gymnasium.make`, not of the environment."""
_SHIPPED = {
    "Level-based foraging is shipped: 'marltrain/foraging_v3'.": re.compile(
        r"(?i)\blb-?foraging|\bforaging\b|level[-_]based[-_]foraging"
    ),
    "Overcooked is shipped: 'marltrain/overcooked_v1'.": re.compile(r"(?i)\bovercooked(_ai|-ai|_?v1)?\b"),
    "Combat after SMAC is shipped: 'marltrain/smax_v2'.": re.compile(r"(?i)(\b|Enemy)(smax|smac)(lite|_?v?2)?\b"),
    "The multi-robot warehouse is shipped: 'marltrain/rware_v2'.": re.compile(r"(?i)\brware\b|robot(ic)?[-_]warehouse"),
}
"""Sentence about a native game -> its names in other packages, such as lbforaging:Foraging-8x8-2p-1f-v3."""
_IMPURE = re.compile(r"knights_archers_zombies_v\d+|Foraging-.*")
"""Games for which a used object, reset with the same seed, gives another episode than a fresh object."""
_BEYOND_BOUNDS = re.compile(r"LunarLander(Continuous)?-v\d+")
"""Environments of Gymnasium whose observations leave the bounds of their space, such as a lander that flies high."""


@dataclass(frozen=True)
class Source:
    """A recipe to build an environment repeatedly: a callable and its arguments.

    name: for messages and records.
    rebuild: whether every episode needs a fresh object, because the reset of a used object gives another episode.
    reproducible: whether equal seeds and actions give equal episodes.
    game: the class of a native game, whose environments are stepped as one batch; `build` creates a single object.
    copies: seeds of the copies that `envs.population` plays side by side; () for a plain environment.
    """

    name: str
    build: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rebuild: bool = False
    reproducible: bool = True
    game: type[Game] | None = None
    copies: tuple[int, ...] = ()

    def make(self, render_mode: str | None = None) -> Any:
        """Build one environment object; `render_mode` is passed on unless it is None.

        Raises ConfigError if `build` returns an object that it returned before.
        """
        extra = {} if render_mode is None else {"render_mode": render_mode}
        return _fresh(self.name, self.build(**self.arguments, **extra))


_BUILT: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Existing environment objects, without their wrappers, by id."""


def _fresh(name: str, made: Any) -> Any:
    """Return a built environment; raises ConfigError if it, or the environment that it wraps, was built before."""
    inner = getattr(made, "unwrapped", made)
    if _BUILT.get(id(inner)) is inner and inner is not None:
        raise ConfigError(
            f"env: {name} returned the same {type(inner).__name__} object twice, but every environment needs one of "
            f"its own. Build it inside of the function, such as lambda: {type(inner).__name__}(...)"
        )
    with contextlib.suppress(TypeError):  # objects of a class with slots allow no weak references
        _BUILT[id(inner)] = inner
    return made


class Modifier(ABC):
    """An environment derived from another one; accepted wherever an environment is accepted."""

    @abstractmethod
    def source(self, env_args: Mapping[str, Any]) -> Source:
        """Return the Source of the derived environment; raises ConfigError as `resolve` does."""


def resolve(env: Any, env_args: Mapping[str, Any] | None = None) -> Source:
    """Return the Source of `env`: a name, a class, or a function that returns an environment.

    Names are, for example, "mpe2/simple_spread_v3", "pettingzoo/classic/tictactoe_v3", "openspiel/leduc_poker" or
    "marltrain/CartPole-v1" (see `list_environments`), or "module:attribute" for any importable callable, FrameStack or
    Flatten. `env_args` are the callable's arguments.

    Raises ConfigError for an unknown name, for unknown arguments, and for an environment object instead of its class.
    """
    if isinstance(env, Source):
        if env_args:
            raise ConfigError("env is resolved already; give env_args when resolving it")
        return env
    if env_args is not None and not isinstance(env_args, Mapping):
        raise ConfigError(
            f"env_args must be a mapping from argument to value, such as {{'N': 3}}, got {shown(env_args)}"
        )
    if not all(isinstance(name, str) for name in env_args or ()):
        raise ConfigError(f"env_args must be named by text, such as {{'N': 3}}, got {shown(env_args)}")
    arguments = dict(env_args or {})
    if isinstance(env, Modifier):
        return env.source(arguments)
    if isinstance(env, str):
        is_name = "/" in env.split(":", 1)[0]
        return _from_name(env, arguments) if is_name else _from_module(env, arguments)
    if hasattr(env, "reset") and hasattr(env, "step") and not isinstance(env, type):
        if is_vector(env):
            raise ConfigError(_vector_text(env))
        raise ConfigError(
            f"env is an object of {type(env).__name__}, but every worker and every environment needs one of its own: "
            f"pass the class, or a function that builds it, such as lambda: {type(env).__name__}(...)"
        )
    if not callable(env):
        raise ConfigError(f"env must be a name, a class or a function that builds an environment, got {shown(env)}")
    return _from_callable(getattr(env, "__qualname__", type(env).__name__), env, env, arguments)


def list_environments() -> list[str]:
    """Return all environment names that `resolve` accepts; some environments need an additional package to be built."""
    return sorted(name for names in _NAMESPACES.values() for name in names())


_OWN_ENTRIES = ("gymnasium.envs.", "ale_py.")
"""Packages whose environments import no module that an argument names."""


def imports_only_known(name: str) -> bool:
    """Return whether a name, with any arguments, imports only known modules and is safe to take from a file.

    False for `module:attribute`, for Gymnasium's GymV21Environment and GymV26Environment, which import the module that
    an argument names, and for environments that other packages have registered with Gymnasium.
    """
    if _missing_package(name):  # building it is an error that names the package
        return True
    if split_module(name)[0] is not None:
        return of_known_module(name)
    if name not in list_environments():
        return False
    if not name.startswith("gymnasium/"):
        return True
    entry = gymnasium.registry[name.split("/", 1)[1]].entry_point
    return isinstance(entry, str) and entry.startswith(_OWN_ENTRIES)


def is_vector(env: Any) -> bool:
    """Return whether an object holds several environments behind one `step`: of Gymnasium or Stable-Baselines3."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        return True
    return hasattr(env, "num_envs") and (hasattr(env, "single_action_space") or hasattr(env, "step_async"))


def _vector_text(env: Any) -> str:
    several = written("num_train_envs=16, num_test_envs=16", "--num-train-envs 16 --num-test-envs 16")
    return (
        f"env: {type(env).__name__} is a vector environment, of {getattr(env, 'num_envs', 'several')} environments: "
        f"give one that is built alone, such as lambda: gymnasium.make(...). Copies are built with {several}"
    )


def api_of(env: Any) -> str:
    """Return "parallel", "turns" or "gymnasium", by type or by attributes; raises EnvError for anything else."""
    if is_vector(env):
        raise EnvError(_vector_text(env))
    for kind, name in ((gymnasium.Env, "gymnasium"), (ParallelEnv, "parallel"), (AECEnv, "turns")):
        if isinstance(env, kind):
            return name
    if hasattr(env, "reset") and hasattr(env, "step"):
        if hasattr(env, "agent_iter") or hasattr(env, "last"):
            return "turns"
        if hasattr(env, "possible_agents"):
            return "parallel"
        if isinstance(getattr(env, "observation_space", None), spaces.Space):
            return "gymnasium"
    raise EnvError(
        f"env: expected a PettingZoo ParallelEnv or AECEnv, or a Gymnasium Env, got {type(env).__name__}: {env!r}. "
        "Pass the environment's class, or a function that builds and returns the environment."
    )


def _modules(package: str, namespace: str) -> list[str]:
    """Return the names of a package's versioned games without importing them."""
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return [f"{namespace}/{found.name}" for found in pkgutil.iter_modules(folders) if _VERSIONED.fullmatch(found.name)]


_NAMESPACES: dict[str, Callable[[], list[str]]] = {
    "gymnasium": lambda: [f"gymnasium/{name}" for name in gymnasium.registry],
    jaxmarl.NAMESPACE: jaxmarl.game_names,
    "marltrain": lambda: [f"marltrain/{name}" for name in GAMES],
    "mpe2": lambda: _modules("mpe2", "mpe2"),
    "openspiel": game_names,
    "pettingzoo": lambda: [
        name
        for family in pkgutil.iter_modules(pettingzoo.__path__)
        if family.ispkg
        for name in _modules(f"pettingzoo.{family.name}", f"pettingzoo/{family.name}")
    ],
}


def _from_name(name: str, arguments: dict[str, Any]) -> Source:
    namespace = name.split("/", 1)[0]
    module, plain = split_module(name)
    if module is not None:
        _import(module, name)  # as in Gymnasium: the import registers environments
    if absent := _missing_package(name):
        text = f"env: {name!r} needs {absent}, which is not installed: {_installing(absent)}."
        raise ConfigError(text + _shipped_as(name))
    if namespace not in _NAMESPACES or plain not in _NAMESPACES[namespace]():
        raise _unknown(name)
    if namespace == "marltrain":
        game = find(name.split("/", 1)[1])
        return _from_callable(name, game, game, arguments)
    if namespace == "gymnasium":
        return _from_gymnasium(plain, with_module(plain, module), arguments)
    if namespace == jaxmarl.NAMESPACE:
        check_arguments(name, arguments, jaxmarl.GAMES[plain.split("/", 1)[1]])
        return Source(name, functools.partial(jaxmarl.jaxmarl_env, plain.split("/", 1)[1]), arguments)
    if namespace == "openspiel":
        game_name = name.split("/", 1)[1]
        check_arguments(name, arguments, argument_names(game_name))
        return Source(name, functools.partial(openspiel_env, game_name), arguments)
    return _from_pettingzoo(name, arguments)


def _missing_package(name: str) -> str | None:
    """Return the module of an optional package that has the game of a name and is not installed; None otherwise."""
    namespace, _, game = name.partition("/")
    module, names = _OPTIONAL.get(namespace, (None, _VERSIONED))
    return module if module is not None and names.fullmatch(game) and not is_installed(module) else None


def _installing(module: str) -> str:
    """Return the command that installs a missing module."""
    extra = extra_of(module)
    return f"pip install {module}" if extra is None else install(extra)


def _unknown(name: str) -> ConfigError:
    known = list_environments()
    hint = _shipped_as(name) or did_you_mean(name, known) or suggestion(name)
    listing = written("mt.list_environments()", "marltrain envs")
    return ConfigError(
        f"env: unknown environment {shown(name)}.{hint} `{listing}` lists all {len(known)}; "
        'your own are named "module:attribute".'
    )


def _shipped_as(name: str) -> str:
    """Return a sentence about marltrain's own version of a game that other packages have; "" without one.

    A game's own name suffices: "simple_spread_v3" is "marltrain/simple_spread_v3", "CartPole-v1" two environments.
    """
    for sentence, pattern in _SHIPPED.items():
        if pattern.search(name):
            return f" {sentence}{suggestion(name)}"
    if known := registered(name):
        return known
    last = name.rsplit("/", 1)[-1].rsplit(":", 1)[-1]
    same = [one for one in list_environments() if last and one.rsplit("/", 1)[-1] == last and one != name]
    return f" Did you mean {' or '.join(map(repr, same))}?" if same else ""


def _from_gymnasium(plain: str, name: str, arguments: dict[str, Any]) -> Source:
    """Return the Source of a registered environment; plain: its name without the module that registers it."""
    spec = gymnasium.spec(plain.removeprefix(PREFIX))
    entry = spec.entry_point
    try:
        with _quiet():
            creator = entry if callable(entry) else gymnasium.envs.registration.load_env_creator(str(entry))
    except (ImportError, gymnasium.error.Error) as error:
        raise ConfigError(f"env: {name!r} cannot be imported: {error}. {_remedy(name, error)}") from error
    check_arguments(name, arguments, accepted_arguments(creator), also=_GYMNASIUM_MAKES)
    build = functools.partial(_played, functools.partial(_make_gymnasium, spec))
    return Source(name, build, arguments, rebuild=_IMPURE.fullmatch(spec.id) is not None)


def _make_gymnasium(spec: gymnasium.envs.registration.EnvSpec, **arguments: Any) -> Any:
    """Build from the specification, not from the name: the name may not be registered in a worker."""
    env = gymnasium.make(spec, disable_env_checker=True, **arguments)  # `Contract` checks every step
    if _BEYOND_BOUNDS.fullmatch(spec.id.rsplit("/", 1)[-1]):
        env.observation_space = _without_bounds(env.observation_space)
    return env


def _without_bounds(space: Any) -> spaces.Box:
    """Return a Box in which the entries that may be negative have no bounds."""
    signed = space.low < 0
    low, high = np.where(signed, -np.inf, space.low), np.where(signed, np.inf, space.high)
    return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype)


def _from_pettingzoo(name: str, arguments: dict[str, Any]) -> Source:
    module_name = name.replace("/", ".")
    module = _import(module_name, name)
    build = "parallel_env" if hasattr(module, "parallel_env") else "env"
    check_arguments(name, arguments, accepted_arguments(getattr(module, "raw_env", getattr(module, build))))
    impure = _IMPURE.fullmatch(name.rsplit("/", 1)[-1]) is not None
    return Source(name, functools.partial(_build, module_name, build), arguments, rebuild=impure)


def _build(module: str, attribute: str, **arguments: Any) -> Any:
    """Import a module and call its attribute; only the two names are sent to a worker."""
    return getattr(_import(module, module), attribute)(**arguments)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ignore DeprecationWarning: PettingZoo's about its own constructors, and Box2D's, which as an error is a crash."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _import(module: str, name: str) -> Any:
    try:
        with _quiet():
            return importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:  # TypeError, ValueError: invalid module names
        hint = _shipped_as(name)
        remedy = _remedy(name, error)
        raise ConfigError(f"env: {shown(name)} cannot be imported: {error}. {remedy}{hint}") from error


def _remedy(name: str, error: Exception) -> str:
    """Return a sentence about the packages that an environment needs, from the error of its import."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and name.startswith("pettingzoo/"):  # PettingZoo has an extra for each family of games
        return f'Install what it needs: pip install "pettingzoo[{name.split("/")[1]}]".'
    if extra := extra_of(missing):
        return f"Install what it needs: {install(extra)}."
    return "Install what it needs."


def _from_module(name: str, arguments: dict[str, Any]) -> Source:
    if ":" not in name:
        raise _unknown(name)
    module_name, _, attribute = name.partition(":")
    module = _import(module_name, name)
    if not hasattr(module, attribute):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        hint = _shipped_as(name) or did_you_mean(attribute, names)
        raise ConfigError(f"env: module {module_name!r} has no {attribute!r}.{hint}")
    found = getattr(module, attribute)
    if isinstance(found, Modifier):
        return found.source(arguments)
    return _from_callable(name, found, functools.partial(_build, module_name, attribute), arguments)


def _from_callable(name: str, called: Any, build: Callable[..., Any], arguments: dict[str, Any]) -> Source:
    """Return the Source of a callable that returns an environment, or of a native game's class."""
    check_arguments(name, arguments, accepted_arguments(called))
    if isinstance(called, type) and issubclass(called, Game):
        return Source(name, functools.partial(game_object, called), arguments, game=called)
    return Source(name, functools.partial(_played, build), arguments)


def _played(build: Callable[..., Any], **arguments: Any) -> Any:
    """Build an environment; a Gymnasium environment of several players becomes a PettingZoo environment."""
    result = build(**arguments)
    return result if is_vector(result) else by_player(result)
