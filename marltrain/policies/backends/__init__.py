"""The frameworks: `torch/` and `tensorflow/` provide the same interface. Each is imported only on request."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, error_text, shown
from marltrain.core.extras import install, is_installed
from marltrain.policies.backends.base import REQUIRE, Backend, JitCompile
from marltrain.policies.backends.strategies import chosen

INSTALL = {"tensorflow": install("tensorflow"), "torch": "pip install torch"}
BACKENDS = tuple(INSTALL)


def make_backend(name: str, device: str = "auto", *, jit_compile: JitCompile = False, strategy: Any = None) -> Backend:
    """Return the named backend on a device; raises ConfigError if it is unknown or cannot be imported.

    strategy: distributes gradient steps over devices or processes; None: no distribution.
    """
    if name not in BACKENDS:
        raise ConfigError(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}.{did_you_mean(name, BACKENDS)}")
    if not is_installed(name):
        raise ConfigError(f"backend {name!r} is not installed: {INSTALL[name]}")
    check_jit_compile("", jit_compile)
    module = _module(name)
    spread = chosen(strategy, name)
    if spread is not None and jit_compile:
        raise ConfigError(
            f"jit_compile={jit_compile!r} goes with no strategy: a pass that is spread is not compiled. Leave one out"
        )
    if spread is None or spread.members():
        backend: Backend = module.Backend(device, jit_compile=jit_compile)
    else:
        backend = import_module(f"{module.__name__}.devices").within(device, spread)
    backend.strategy = spread
    return backend


def check_jit_compile(who: str, value: object) -> None:
    """Raise ConfigError, which begins with `who`, unless a value is one of `JitCompile`."""
    if not (isinstance(value, bool) or (isinstance(value, str) and value == REQUIRE)):
        raise ConfigError(f"{who}jit_compile must be True or False or {REQUIRE!r}, got {shown(value)}")


def first_gpu(name: str) -> str | None:
    """Return the name of the first GPU that a backend can use, None without one."""
    gpu: str | None = _module(name).gpu()
    return gpu


def _module(name: str) -> Any:
    """Return the module of a backend; raises ConfigError if its framework cannot be imported."""
    try:
        if name == "tensorflow" and is_installed("triton"):  # TensorFlow 2.21, then Triton 3.8: a segmentation fault
            import_module("triton")
        return import_module(f"marltrain.policies.backends.{name}")
    except (ImportError, OSError) as error:  # OSError: a library of the system is missing
        raise ConfigError(
            f"backend {name!r} cannot be imported: {error_text(error)}. `marltrain doctor` tells the remedy"
        ) from error
