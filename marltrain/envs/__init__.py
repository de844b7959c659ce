"""Vector environments: E copies of any PettingZoo or Gymnasium environment as arrays.

`make_vector` builds E environments behind `reset / send / recv`, which return `marltrain.core.spec.Step`. `check_env`
checks whether an environment follows the contract. This package contains no policies and imports no learning framework.
"""

from marltrain.envs.flatten import Flatten
from marltrain.envs.frame_stack import FrameStack
from marltrain.envs.make import make_vector
from marltrain.envs.python.check_env import Report, check_env
from marltrain.envs.python.probe import probe
from marltrain.envs.registry import Source, list_environments, resolve
from marltrain.envs.vector import DummyVectorEnv, VectorEnv
from marltrain.envs.workers.ray_vector import RayVectorEnv
from marltrain.envs.workers.subproc import SubprocVectorEnv

__all__ = [
    "DummyVectorEnv",
    "Flatten",
    "FrameStack",
    "RayVectorEnv",
    "Report",
    "Source",
    "SubprocVectorEnv",
    "VectorEnv",
    "check_env",
    "list_environments",
    "make_vector",
    "probe",
    "resolve",
]
