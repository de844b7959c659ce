"""Answers of a child process: facts of a package that it imports, and a short training."""

from __future__ import annotations

import importlib
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marltrain.core.errors import error_text
from marltrain.tools.doctor.processes import MARK

GAME = "marltrain/CartPole-v1"
"""The native game of the short training."""
STEPS = 64
"""Env steps of the short training."""


def answer(function: str, *arguments: str) -> None:
    """Call a function of this module, write its answer or its failure to stdout, and end this process."""
    known: Mapping[str, Callable[..., dict[str, Any]]] = {"imported": imported, "shared": shared, "trained": trained}
    try:
        found = {"facts": known[function](*arguments), "failure": ""}
    except BaseException as error:  # a package may raise anything at its import, also SystemExit
        found = {"facts": {}, "failure": _reason(error)}
    os.write(1, f"\n{MARK}{json.dumps(found)}\n".encode())
    os._exit(0)  # at once: packages may hang or crash when the process ends


def _reason(error: BaseException) -> str:
    """Return the text of an error, and that of its first cause if it is another one."""
    first = error
    while (cause := first.__cause__ or (None if first.__suppress_context__ else first.__context__)) is not None:
        first = cause
    texts = [error_text(error), error_text(first)]
    return texts[0] if texts[1] in texts[0] else f"{texts[0].splitlines()[0]} (caused by {texts[1]})"


def imported(module: str) -> dict[str, Any]:
    """Import a module and return its version, and further facts of some modules."""
    found = importlib.import_module(module)
    version = getattr(found, "__version__", None)
    further = {"imageio_ffmpeg": _films, "numba": _numba, "tensorflow": _tensorflow, "torch": _torch}
    return {"version": version if isinstance(version, str) else None} | (
        further[module](found) if module in further else {}
    )


def _torch(torch: Any) -> dict[str, Any]:
    """Return PyTorch's threads, and its devices with the bytes of their memory."""
    cuda = range(torch.cuda.device_count()) if torch.cuda.is_available() else range(0)
    found = [(torch.cuda.get_device_name(i), torch.cuda.get_device_properties(i).total_memory) for i in cuda]
    gpus = [{"name": f"cuda:{i}", "device": name, "memory": memory} for i, (name, memory) in enumerate(found)]
    torch.ones(2, 2) @ torch.ones(2, 2)
    return {"threads": torch.get_num_threads(), "cuda": torch.version.cuda, "gpus": gpus}


def _tensorflow(tf: Any) -> dict[str, Any]:
    """Return TensorFlow's threads (0: it decides itself) and its devices."""
    gpus = [{"name": gpu.name, "device": None, "memory": None} for gpu in tf.config.list_physical_devices("GPU")]
    return {"threads": tf.config.threading.get_intra_op_parallelism_threads(), "gpus": gpus}


def _numba(numba: Any) -> dict[str, Any]:
    """Return Numba's threads and, from LLVM, the processor and its features.

    The threads are read from its configuration: `numba.get_num_threads` starts them, and sets those of torch, too.
    """
    binding = importlib.import_module("llvmlite.binding")
    features = binding.get_host_cpu_features()
    return {
        "threads": numba.config.NUMBA_NUM_THREADS, "processor": binding.get_host_cpu_name(),
        "features": sorted(name for name, there in features.items() if there),
        "vector": importlib.import_module("marltrain.policies.compiled.gemm").WIDEST,
    }  # fmt: skip


def _films(imageio_ffmpeg: Any) -> dict[str, Any]:
    """Return the path and the version of the program that writes films; raises RuntimeError if there is none."""
    return {"program": imageio_ffmpeg.get_ffmpeg_exe(), "ffmpeg": imageio_ffmpeg.get_ffmpeg_version()}


def shared() -> dict[str, Any]:
    """Allocate memory as worker processes share it, and a lock; raises OSError where the system has none."""
    memory: Any = multiprocessing.get_context().RawArray("B", 2**20)
    multiprocessing.Lock()
    memory[-1] = 1
    return {"bytes": len(memory)}


def trained() -> dict[str, Any]:
    """Train a native game for a moment, as a user does; return the seconds and the number of gradient steps."""
    begin = time.monotonic()
    from marltrain.trainer.decentralized import DecentralizedTrainer
    from marltrain.trainer.make_agents import make_agents

    agents = make_agents("ppo", GAME, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = DecentralizedTrainer(
            GAME, num_train_envs=2, num_test_envs=1, update_freq=STEPS // 2, batch_size=STEPS // 4,
            steps_per_train=STEPS, test_freq=None, seed=0, progress=False, run_dir=Path(folder) / "run",
        )  # fmt: skip
        result = trainer.train(agents, learning_mask=[1])
    steps = result["num_gradient_steps"]
    if not steps or not all(map(math.isfinite, result["reward_metric_stats"])):
        raise ArithmeticError(f"{STEPS} env steps gave {steps} gradient steps, and {result['reward_metric_stats']}")
    return {"game": GAME, "env_steps": STEPS, "gradient_steps": steps, "seconds": round(time.monotonic() - begin, 1)}
