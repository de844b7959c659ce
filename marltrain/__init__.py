"""Train several agents at once in one environment, each with its own policy.

Public names are available as `marltrain.<name>` and are loaded on first use: importing the package loads none of torch,
tensorflow, ray, pandas, pyplot, numba and tianshou. `python -m marltrain` runs this file while the working folder is
still first on the path. Therefore it imports only modules that Python has already loaded, not even `typing`.
"""

import importlib

from marltrain.core.version import __version__ as __version__
from marltrain.policies.agents.registry import ALGORITHMS

TYPE_CHECKING = False  # true for type checkers

_HOME = {
    "ActInputs": "marltrain.policies.batches.batch",
    "Acted": "marltrain.policies.batches.batch",
    "ActionChoice": "marltrain.policies.exploration",
    "ActionNoise": "marltrain.policies.exploration",
    "Adapt": "marltrain.trainer.adapting.adapt",
    "Agent": "marltrain.policies.agents.agent",
    "AgentArguments": "marltrain.policies.agents.arguments",
    "AgentError": "marltrain.core.errors",
    "AgentHandle": "marltrain.tools.attach",
    "AgentState": "marltrain.policies.batches.batch",
    "Algorithm": "marltrain.policies.interface.algorithm",
    "Batch": "marltrain.policies.batches.batch",
    "CNN": "marltrain.policies.networks.specs",
    "CSVLogger": "marltrain.tools.loggers.scalar_files",
    "Callback": "marltrain.trainer.events.callbacks",
    "Checkpoint": "marltrain.trainer.saving.checkpoint",
    "Column": "marltrain.policies.memory.needs",
    "Comparison": "marltrain.tools.comparing.result",
    "ConfigError": "marltrain.core.errors",
    "ConnectFourMinimax": "marltrain.rivals.connect_four_play",
    "ContinuousExploration": "marltrain.policies.exploration",
    "CustomAgent": "marltrain.policies.agents.custom",
    "DataParallel": "marltrain.policies.backends.strategies",
    "DecentralizedTrainer": "marltrain.trainer.decentralized",
    "Demonstrations": "marltrain.policies.demonstrations.demonstrations",
    "DiscreteExploration": "marltrain.policies.exploration",
    "DummyVectorEnv": "marltrain.envs",
    "EarlyStopping": "marltrain.trainer.adapting.early_stopping",
    "EnvError": "marltrain.core.errors",
    "EnvSpec": "marltrain.core.spec",
    "EvaluationResult": "marltrain.tools.evaluating.result",
    "Experience": "marltrain.policies.batches.batch",
    "ExportedPolicy": "marltrain.tools.export.loading",
    "FindResult": "marltrain.tools.finding.find",
    "Film": "marltrain.tools.film",
    "Flatten": "marltrain.envs",
    "FrameStack": "marltrain.envs",
    "FrozenAgent": "marltrain.policies.agents.fixed",
    "FunctionAgent": "marltrain.policies.agents.fixed",
    "GRU": "marltrain.policies.networks.specs",
    "Head": "marltrain.policies.networks.specs",
    "Hindsight": "marltrain.policies.memory.config",
    "JSONLinesLogger": "marltrain.tools.loggers.scalar_files",
    "JobHandle": "marltrain.tools.attach",
    "JointAlgorithm": "marltrain.policies.interface.joint",
    "LSTM": "marltrain.policies.networks.specs",
    "LambdaCallback": "marltrain.trainer.events.lambda_callback",
    "Learner": "marltrain.policies.learner.learner",
    "LeagueRatings": "marltrain.rivals.league_ratings",
    "LeagueReport": "marltrain.rivals.league_report",
    "LearningAgent": "marltrain.policies.agents.algorithm_agent",
    "League": "marltrain.rivals.league",
    "LearningRateRangeTest": "marltrain.tools.finding.range_test",
    "LossBatch": "marltrain.policies.agents.custom_losses",
    "MLP": "marltrain.policies.networks.specs",
    "MLflowLogger": "marltrain.tools.loggers.mlflow_logger",
    "MarlTrainError": "marltrain.core.errors",
    "MaskError": "marltrain.core.errors",
    "Member": "marltrain.policies.interface.joint",
    "MirroredStrategy": "marltrain.policies.backends.strategies",
    "MixedAgent": "marltrain.policies.agents.mixed",
    "Moment": "marltrain.trainer.events.callbacks",
    "MultiWorkerMirroredStrategy": "marltrain.policies.backends.strategies",
    "Needs": "marltrain.policies.memory.needs",
    "NaturalGradient": "marltrain.policies.interface.natural_gradient",
    "NetworkDefinition": "marltrain.policies.networks.specs",
    "NetworkSpec": "marltrain.policies.networks.specs",
    "OffPolicyAgent": "marltrain.policies.agents.tianshou",
    "OnPolicyAgent": "marltrain.policies.agents.tianshou",
    "OpponentPool": "marltrain.rivals.opponent_pool",
    "PSROResult": "marltrain.rivals.psro",
    "ParameterServerStrategy": "marltrain.policies.backends.strategies",
    "Ops": "marltrain.policies.ops",
    "PBTResult": "marltrain.tools.tuning.pbt",
    "Phase": "marltrain.policies.interface.algorithm",
    "PlayerSpec": "marltrain.core.spec",
    "Prioritized": "marltrain.policies.memory.config",
    "ProgressPrinter": "marltrain.trainer.reporting.progress",
    "RandomAgent": "marltrain.policies.agents.fixed",
    "Range": "marltrain.core.settings",
    "RayVectorEnv": "marltrain.envs",
    "ReduceOnPlateau": "marltrain.trainer.adapting.reduce_on_plateau",
    "Replay": "marltrain.policies.memory.config",
    "ReservoirTransitions": "marltrain.policies.batches.batch",
    "Rollout": "marltrain.policies.batches.batch",
    "Rollouts": "marltrain.policies.memory.config",
    "RewardModel": "marltrain.policies.interface.reward_model",
    "RoundRobin": "marltrain.rivals.round_robin",
    "RunProgress": "marltrain.trainer.jobs.messages",
    "RunningStatistics": "marltrain.policies.batches.normalization",
    "SaveError": "marltrain.core.errors",
    "Schedule": "marltrain.policies.hyperparameters.schedules",
    "Settings": "marltrain.policies.interface.algorithm",
    "SpecError": "marltrain.core.errors",
    "Standing": "marltrain.rivals.standings",
    "StateNeed": "marltrain.policies.memory.needs",
    "Step": "marltrain.core.spec",
    "SubprocVectorEnv": "marltrain.envs",
    "Team": "marltrain.policies.interface.joint",
    "TeamBatch": "marltrain.policies.batches.batch",
    "TeamRows": "marltrain.policies.batches.batch",
    "TeamSettings": "marltrain.policies.interface.joint",
    "TestResult": "marltrain.trainer.evaluating.evaluation",
    "TicTacToeGames": "marltrain.rivals.tictactoe",
    "Transitions": "marltrain.policies.batches.batch",
    "TripletTransitions": "marltrain.policies.batches.batch",
    "Triplets": "marltrain.policies.memory.config",
    "WandbLogger": "marltrain.tools.loggers.wandb_logger",
    "TuneResult": "marltrain.tools.tuning.tuning",
    "WorkerError": "marltrain.core.errors",
    "accepts": "marltrain.policies.agents.arguments",
    "attach": "marltrain.tools.attach",
    "check_env": "marltrain.envs",
    "compare": "marltrain.tools.comparing.compare",
    "connect_four_blunders": "marltrain.rivals.connect_four_play",
    "connect_four_positions": "marltrain.rivals.connect_four_play",
    "connect_four_scores": "marltrain.rivals.connect_four",
    "cosine": "marltrain.policies.hyperparameters.schedules",
    "dataset": "marltrain.tools.dataset",
    "decay": "marltrain.policies.hyperparameters.schedules",
    "distribution_of": "marltrain.policies.distributions",
    "demonstrations": "marltrain.trainer.playing.demonstrations",
    "evaluate": "marltrain.tools.evaluating.evaluate",
    "exploitability": "marltrain.rivals.exploitability",
    "exponential": "marltrain.policies.hyperparameters.schedules",
    "export": "marltrain.tools.export.export",
    "find_agent": "marltrain.tools.finding.find",
    "find_learning_rate": "marltrain.tools.finding.find",
    "find_optimizer": "marltrain.tools.finding.find",
    "gae": "marltrain.policies.algorithms.returns",
    "in_random_order": "marltrain.policies.interface.algorithm",
    "league_report": "marltrain.rivals.rate_league",
    "linear": "marltrain.policies.hyperparameters.schedules",
    "list_environments": "marltrain.envs",
    "load": "marltrain.policies.agents.saving",
    "load_exported": "marltrain.tools.export.loading",
    "make_agents": "marltrain.trainer.make_agents",
    "masked": "marltrain.policies.distributions",
    "memory_of": "marltrain.policies.batches.tensor_batch",
    "named_runs": "marltrain.tools.attach",
    "needs_of": "marltrain.policies.interface.recurrence",
    "next_values": "marltrain.policies.algorithms.returns",
    "play": "marltrain.trainer.playing.play",
    "population_based_training": "marltrain.tools.tuning.pbt",
    "replay": "marltrain.tools.evaluating.replays",
    "retrace": "marltrain.policies.algorithms.returns",
    "psro": "marltrain.rivals.psro",
    "round_robin": "marltrain.rivals.round_robin",
    "save": "marltrain.policies.agents.saving",
    "setting": "marltrain.core.settings",
    "switch": "marltrain.policies.hyperparameters.schedules",
    "train_offline": "marltrain.tools.offline",
    "tictactoe_games": "marltrain.rivals.tictactoe",
    "tictactoe_scores": "marltrain.rivals.tictactoe",
    "tune": "marltrain.tools.tuning.tuning",
    "tuned": "marltrain.trainer.tuned",
    "watch": "marltrain.tools.watch",
    "weighted_mean": "marltrain.policies.interface.algorithm",
} | {agent: module for module, agent in ALGORITHMS.values()}
"""Public names and the modules that define them."""

__all__ = sorted(_HOME)  # (type checkers read the imports at the end of the file)


def __getattr__(name: str) -> "Any":
    """Load a public name from its module on first access; a failed import names `marltrain doctor`."""
    if name not in _HOME:
        raise AttributeError(f"module 'marltrain' has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(_HOME[name]), name)
    except ImportError as error:
        importlib.import_module("marltrain.core.errors").name_the_doctor(error)
        raise
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted([*__all__, "__version__"])


if TYPE_CHECKING:
    from typing import Any

    from marltrain.core.errors import (
        AgentError as AgentError,
        ConfigError as ConfigError,
        EnvError as EnvError,
        MarlTrainError as MarlTrainError,
        MaskError as MaskError,
        SaveError as SaveError,
        SpecError as SpecError,
        WorkerError as WorkerError,
    )
    from marltrain.core.settings import Range as Range, setting as setting
    from marltrain.core.spec import EnvSpec as EnvSpec, PlayerSpec as PlayerSpec, Step as Step
    from marltrain.envs import (
        DummyVectorEnv as DummyVectorEnv,
        Flatten as Flatten,
        FrameStack as FrameStack,
        RayVectorEnv as RayVectorEnv,
        SubprocVectorEnv as SubprocVectorEnv,
        check_env as check_env,
        list_environments as list_environments,
    )
    from marltrain.policies.agents.agent import Agent as Agent
    from marltrain.policies.agents.algorithm_agent import LearningAgent as LearningAgent
    from marltrain.policies.agents.arguments import AgentArguments as AgentArguments, accepts as accepts
    from marltrain.policies.agents.custom import CustomAgent as CustomAgent
    from marltrain.policies.agents.custom_losses import LossBatch as LossBatch
    from marltrain.policies.agents.fixed import (
        FrozenAgent as FrozenAgent,
        FunctionAgent as FunctionAgent,
        RandomAgent as RandomAgent,
    )
    from marltrain.policies.agents.mixed import MixedAgent as MixedAgent
    from marltrain.policies.agents.saving import load as load, save as save
    from marltrain.policies.agents.tianshou import OffPolicyAgent as OffPolicyAgent, OnPolicyAgent as OnPolicyAgent
    from marltrain.policies.algorithms import *  # noqa: F403, the agent classes of all algorithms
    from marltrain.policies.algorithms.returns import gae as gae, next_values as next_values, retrace as retrace
    from marltrain.policies.backends.strategies import (
        DataParallel as DataParallel,
        MirroredStrategy as MirroredStrategy,
        MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
        ParameterServerStrategy as ParameterServerStrategy,
    )
    from marltrain.policies.batches.batch import (
        Acted as Acted,
        ActInputs as ActInputs,
        AgentState as AgentState,
        Batch as Batch,
        Experience as Experience,
        ReservoirTransitions as ReservoirTransitions,
        Rollout as Rollout,
        TeamBatch as TeamBatch,
        TeamRows as TeamRows,
        Transitions as Transitions,
        TripletTransitions as TripletTransitions,
    )
    from marltrain.policies.batches.normalization import RunningStatistics as RunningStatistics
    from marltrain.policies.batches.tensor_batch import memory_of as memory_of
    from marltrain.policies.demonstrations.demonstrations import Demonstrations as Demonstrations
    from marltrain.policies.distributions import distribution_of as distribution_of, masked as masked
    from marltrain.policies.exploration import (
        ActionChoice as ActionChoice,
        ActionNoise as ActionNoise,
        ContinuousExploration as ContinuousExploration,
        DiscreteExploration as DiscreteExploration,
    )
    from marltrain.policies.hyperparameters.schedules import (
        Schedule as Schedule,
        cosine as cosine,
        decay as decay,
        exponential as exponential,
        linear as linear,
        switch as switch,
    )
    from marltrain.policies.interface.algorithm import (
        Algorithm as Algorithm,
        Phase as Phase,
        Settings as Settings,
        in_random_order as in_random_order,
        weighted_mean as weighted_mean,
    )
    from marltrain.policies.interface.joint import (
        JointAlgorithm as JointAlgorithm,
        Member as Member,
        Team as Team,
        TeamSettings as TeamSettings,
    )
    from marltrain.policies.interface.natural_gradient import NaturalGradient as NaturalGradient
    from marltrain.policies.interface.recurrence import needs_of as needs_of
    from marltrain.policies.interface.reward_model import RewardModel as RewardModel
    from marltrain.policies.learner.learner import Learner as Learner
    from marltrain.policies.memory.config import (
        Hindsight as Hindsight,
        Prioritized as Prioritized,
        Replay as Replay,
        Rollouts as Rollouts,
        Triplets as Triplets,
    )
    from marltrain.policies.memory.needs import Column as Column, Needs as Needs, StateNeed as StateNeed
    from marltrain.policies.networks.specs import (
        CNN as CNN,
        GRU as GRU,
        LSTM as LSTM,
        MLP as MLP,
        Head as Head,
        NetworkDefinition as NetworkDefinition,
        NetworkSpec as NetworkSpec,
    )
    from marltrain.policies.ops import Ops as Ops
    from marltrain.rivals.connect_four import connect_four_scores as connect_four_scores
    from marltrain.rivals.connect_four_play import (
        ConnectFourMinimax as ConnectFourMinimax,
        connect_four_blunders as connect_four_blunders,
        connect_four_positions as connect_four_positions,
    )
    from marltrain.rivals.exploitability import exploitability as exploitability
    from marltrain.rivals.league import League as League
    from marltrain.rivals.league_ratings import LeagueRatings as LeagueRatings
    from marltrain.rivals.league_report import LeagueReport as LeagueReport
    from marltrain.rivals.opponent_pool import OpponentPool as OpponentPool
    from marltrain.rivals.psro import PSROResult as PSROResult, psro as psro
    from marltrain.rivals.rate_league import league_report as league_report
    from marltrain.rivals.round_robin import RoundRobin as RoundRobin, round_robin as round_robin
    from marltrain.rivals.standings import Standing as Standing
    from marltrain.rivals.tictactoe import (
        TicTacToeGames as TicTacToeGames,
        tictactoe_games as tictactoe_games,
        tictactoe_scores as tictactoe_scores,
    )
    from marltrain.tools.attach import (
        AgentHandle as AgentHandle,
        JobHandle as JobHandle,
        attach as attach,
        named_runs as named_runs,
    )
    from marltrain.tools.comparing.compare import compare as compare
    from marltrain.tools.comparing.result import Comparison as Comparison
    from marltrain.tools.dataset import dataset as dataset
    from marltrain.tools.evaluating.evaluate import evaluate as evaluate
    from marltrain.tools.evaluating.replays import replay as replay
    from marltrain.tools.evaluating.result import EvaluationResult as EvaluationResult
    from marltrain.tools.export.export import export as export
    from marltrain.tools.export.loading import ExportedPolicy as ExportedPolicy, load_exported as load_exported
    from marltrain.tools.film import Film as Film
    from marltrain.tools.finding.find import (
        FindResult as FindResult,
        find_agent as find_agent,
        find_learning_rate as find_learning_rate,
        find_optimizer as find_optimizer,
    )
    from marltrain.tools.finding.range_test import LearningRateRangeTest as LearningRateRangeTest
    from marltrain.tools.loggers.mlflow_logger import MLflowLogger as MLflowLogger
    from marltrain.tools.loggers.scalar_files import CSVLogger as CSVLogger, JSONLinesLogger as JSONLinesLogger
    from marltrain.tools.loggers.wandb_logger import WandbLogger as WandbLogger
    from marltrain.tools.offline import train_offline as train_offline
    from marltrain.tools.tuning.pbt import (
        PBTResult as PBTResult,
        population_based_training as population_based_training,
    )
    from marltrain.tools.tuning.tuning import TuneResult as TuneResult, tune as tune
    from marltrain.tools.watch import watch as watch
    from marltrain.trainer.adapting.adapt import Adapt as Adapt
    from marltrain.trainer.adapting.early_stopping import EarlyStopping as EarlyStopping
    from marltrain.trainer.adapting.reduce_on_plateau import ReduceOnPlateau as ReduceOnPlateau
    from marltrain.trainer.decentralized import DecentralizedTrainer as DecentralizedTrainer
    from marltrain.trainer.evaluating.evaluation import TestResult as TestResult
    from marltrain.trainer.events.callbacks import Callback as Callback, Moment as Moment
    from marltrain.trainer.events.lambda_callback import LambdaCallback as LambdaCallback
    from marltrain.trainer.jobs.messages import RunProgress as RunProgress
    from marltrain.trainer.make_agents import make_agents as make_agents
    from marltrain.trainer.playing.demonstrations import demonstrations as demonstrations
    from marltrain.trainer.playing.play import play as play
    from marltrain.trainer.reporting.progress import ProgressPrinter as ProgressPrinter
    from marltrain.trainer.saving.checkpoint import Checkpoint as Checkpoint
    from marltrain.trainer.tuned import tuned as tuned
