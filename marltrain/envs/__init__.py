"""Environments as arrays: any PettingZoo or Gymnasium environment, E of them at a time.

`make_vector` builds E environments behind `reset / send / recv`, which speak `marltrain.spec.Step`; `check_env` tells
whether an environment keeps its contract. This package knows no policy and loads no learning framework.
"""

from marltrain.envs.frame_stack import FrameStack
from marltrain.envs.make import make_vector
from marltrain.envs.python.check_env import Report, check_env
from marltrain.envs.python.chunk import probe
from marltrain.envs.registry import Source, list_environments, resolve
from marltrain.envs.vector import DummyVectorEnv, VectorEnv
from marltrain.envs.workers.subproc import SubprocVectorEnv

__all__ = [
    "DummyVectorEnv",
    "FrameStack",
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
