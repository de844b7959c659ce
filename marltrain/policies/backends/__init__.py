"""The frameworks: `torch/` (and `tensorflow/`), with the same names in both. Each is imported only when asked for."""

from __future__ import annotations

from typing import Any

from marltrain.errors import ConfigError, did_you_mean

BACKENDS = ("torch",)


def make_backend(name: str, device: str = "auto") -> Any:
    """Return the named backend on a device; raises ConfigError for an unknown name."""
    if name not in BACKENDS:
        raise ConfigError(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}.{did_you_mean(name, BACKENDS)}")
    from marltrain.policies.backends.torch import Backend

    return Backend(device)
