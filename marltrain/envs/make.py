"""`make_vector`: build E environments from a name, a class or a function, here, in workers or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marltrain.core.errors import ConfigError, EnvError, did_you_mean, shown
from marltrain.envs.faults import MAX_RESTARTS, FaultPolicy
from marltrain.envs.recorded import values_of
from marltrain.envs.registry import Source, resolve
from marltrain.envs.vector import DummyVectorEnv, VectorEnv, check_timeout
from marltrain.envs.workers.ray_vector import RayVectorEnv
from marltrain.envs.workers.subproc import SubprocVectorEnv
from marltrain.processes.ray_actors import ANSWER

VECTORS = ("dummy", "subproc", "ray")


def make_vector(
    env: Any,
    env_args: Mapping[str, Any] | None = None,
    num_envs: int = 1,
    *,
    vector: str = "dummy",
    num_workers: int | None = None,
    role: str = "train",
    with_state: bool = False,
    recording: bool = False,
    on_fault: str | None = "raise",
    max_env_restarts: int = MAX_RESTARTS,
    env_timeout: float | None = None,
    record: Sequence[str] = (),
    resources: Mapping[str, float] | None = None,
    address: str | None = None,
    timeout: float = ANSWER,
) -> VectorEnv:
    """Build `num_envs` environments of `env`, in this process ("dummy"), worker processes ("subproc") or Ray actors.

    The environments of a native game form one batch per process, stepped by one compiled call.

    vector: "dummy", "subproc" or "ray".  num_workers: number of worker processes or actors.

    env, env_args: see `resolve`.  role: "train" or "test"; the two roles never share a seed.
    with_state: also publish the global state, if the environment has one.
    recording: record the actions of running episodes, which the `state` of Python environments needs.
    on_fault: the reaction if a Python environment raises, breaks its contract or hangs, or if its worker ends.
      "raise": raise an error.  "restart": rebuild the environment and start its next episode, see `VectorEnv.faults`.
      None: raise an error if its code fails before its first finished episode, else restart.
    max_env_restarts: number of survived faults within 10,000 env steps, over all environments.
    env_timeout: seconds that a worker may take for one env step of its environments, including restarts.
    record: attributes of the environments (fields of a native game) that are recorded when an episode ends, see
      `VectorEnv.recorded`. They must exist after a reset.
    resources, address, timeout: of actors ("ray" only), see `RayVectorEnv`.

    Raises ConfigError, EnvError and SpecError.
    """
    source = resolve(env, env_args)
    handling = FaultPolicy(on_fault, max_env_restarts, env_timeout)
    check_timeout(env_timeout, vector=vector, native=source.game is not None)
    record = record_names(record)
    check_record(source, record)
    if vector != "ray" and (resources is not None or address is not None):
        raise ConfigError(f'resources and address are those of Ray actors, not of vector="{vector}": use vector="ray"')
    if source.copies:
        if vector != "dummy" or with_state or on_fault == "restart" or record:
            raise ConfigError(
                "a population of environments is played in this process, without global states, restarts and records: "
                f"vector={vector!r}, with_state={with_state}, on_fault={on_fault!r}, record={record!r}"
            )
        from marltrain.envs.population import PopulationVectorEnv

        return PopulationVectorEnv(source, num_envs, role=role, recording=recording)
    if vector == "dummy":
        if num_workers is not None:
            raise ConfigError(f'num_workers={num_workers} has no meaning with vector="dummy"; use vector="subproc"')
        if source.game is not None:
            from marltrain.envs.native.vector import NativeVectorEnv  # loads numba

            return NativeVectorEnv(source, num_envs, role=role, with_state=with_state, record=record)
        return DummyVectorEnv(
            source, num_envs, role=role, with_state=with_state, recording=recording, handling=handling, record=record
        )
    if vector == "subproc":
        return SubprocVectorEnv(
            source, num_envs, num_workers=num_workers, role=role, with_state=with_state, recording=recording,
            handling=handling, record=record,
        )  # fmt: skip
    if vector == "ray":
        return RayVectorEnv(
            source, num_envs, num_workers=num_workers, resources=resources, address=address, timeout=timeout,
            role=role, with_state=with_state, recording=recording, handling=handling, record=record,
        )  # fmt: skip
    raise ConfigError(f"unknown vector {vector!r}; expected one of {VECTORS}.{did_you_mean(vector, VECTORS)}")


def record_names(record: Any) -> tuple[str, ...]:
    """Return names of attributes as a tuple; raises ConfigError for anything else."""
    if isinstance(record, str) or not isinstance(record, Sequence) or not all(isinstance(name, str) for name in record):
        raise ConfigError(f"record must be a list of names of the environment's attributes, got {shown(record)}")
    return tuple(dict.fromkeys(record))


def check_record(source: Source, names: Sequence[str]) -> None:
    """Raise ConfigError unless an environment has attributes of these names after a reset, with values to record."""
    if source.game is not None:
        game = source.game(**source.arguments)
        for name in names:
            if name not in game.saved:
                raise ConfigError(f"record: {source.name} has no field {name!r}.{did_you_mean(name, game.saved)} "
                                  f"It has: {', '.join(game.saved)}")  # fmt: skip
        return
    if not names:
        return
    env = source.make()
    try:
        env.reset(seed=0)
        values_of(env, names)
    except EnvError as error:
        raise ConfigError(f"record: {source.name}, after a reset: {error}") from error
    finally:
        env.close()
