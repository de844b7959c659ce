"""RayVectorEnv: E environments in the actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.envs.faults import FaultPolicy
from marltrain.envs.registry import resolve
from marltrain.envs.vector import check_timeout
from marltrain.envs.workers.ray_pool import RayPool
from marltrain.envs.workers.shared import shared_arrays, shared_size
from marltrain.envs.workers.vector import WorkerVectorEnv
from marltrain.processes.ray_actors import ANSWER, Cluster, check_resources


class RayVectorEnv(WorkerVectorEnv):
    """Environments in Ray actors, on this machine or on several. Each actor holds several environments.

    The episodes are bit-identical to those of DummyVectorEnv, for any number of actors. Only the environments' code
    runs in the actors; agents act in this process.
    """

    _pool: RayPool

    def __init__(
        self,
        source: Any,
        num_envs: int,
        *,
        num_workers: int | None = None,
        resources: Mapping[str, float] | None = None,
        address: str | None = None,
        timeout: float = ANSWER,
        role: str = "train",
        with_state: bool = False,
        recording: bool = False,
        handling: FaultPolicy | None = None,
        record: Sequence[str] = (),
    ) -> None:
        """Start `num_workers` actors (default: one per CPU of the cluster, at most one per environment).

        resources: what each actor occupies, such as {"num_cpus": 1, "fast_disk": 1}; None: one CPU must be free when
        an actor starts, and none is kept. With resources, the default is half of the actors that fit: the environments
        of tests have actors of their own.
        address: see `Cluster`.  timeout: seconds that an actor may take to answer, where `env_timeout` is not given.

        Raises ConfigError without Ray, if nothing answers at the address, if no node has the resources, if the nodes'
        versions differ, and if the environment cannot be pickled.
        """
        check_resources(resources)
        given = resolve(source)
        cluster = Cluster(address)
        try:
            most = cluster.cpus if resources is None else max(1, cluster.room(resources) // 2)  # tests have as many
            workers = min(num_envs, most) if num_workers is None else num_workers
            super().__init__(
                given, num_envs, workers,
                role=role, with_state=with_state, recording=recording, handling=handling, record=record,
            )  # fmt: skip
            limit = self._fault_policy.env_timeout
            check_timeout(limit, vector="ray", native=given.game is not None)
            cluster.check_room(resources, "each actor of environments")
            memory = np.zeros(shared_size(self.spec, num_envs, workers), np.uint8)
            shared = shared_arrays(self.spec, num_envs, workers, memory)
            names = (timeout, "timeout") if limit is None else (limit, "env_timeout")
            self._open(shared, self._made_pool(self._tasks, shared, cluster, resources, *names))
        except BaseException:
            cluster.close()
            raise

    def _made_pool(self, *arguments: Any) -> RayPool:
        """Return the actors, see `RayPool`; a subclass has others."""
        return RayPool(*arguments)
