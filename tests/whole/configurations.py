"""Small valid configurations as trees of calls, any argument of which may be spoilt.

There are the trainer's, those of `train`, `test` and `make_agents`, of networks, schedules, checkpoints and memories,
and the words of the command line.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import marltrain as mt
from marltrain.cli import main as command_line
from tests.toys import Identity

GAME, BOARD, POLE = "marltrain/rock_paper_scissors_v1", "marltrain/tictactoe_v3", "gymnasium/CartPole-v1"


@dataclass
class Call:
    """A call that is yet to be made, so that every attempt makes objects of its own."""

    function: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)

    def made(self) -> Any:
        """Make it, and before it those in its arguments."""
        return self.function(**{name: _made(value) for name, value in self.arguments.items()})

    def places(self) -> Iterator[tuple[Call, str]]:
        """Every argument, here and below."""
        for name, value in self.arguments.items():
            yield self, name
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, Call):
                    yield from inner.places()


def _copied(value: Any) -> Any:
    """Return a tree of calls whose arguments may be spoilt without spoiling those of the given one."""
    if isinstance(value, list):
        return [_copied(inner) for inner in value]
    if isinstance(value, Call):
        return Call(value.function, {name: _copied(inner) for name, inner in value.arguments.items()})
    return value


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return [_made(inner) for inner in value]
    return value.made() if isinstance(value, Call) else value


@dataclass(repr=False)
class Configuration:
    """A call, the arguments in it that were spoilt, and how."""

    call: Call
    spoilt: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def spoil(self, call: Call, name: str, value: Any, told: str = "") -> None:
        """Give an argument another value."""
        self.spoilt += [name, *_above(self.call, call)]
        call.arguments[name] = _copied(value)
        self.spoilt += _names_in(value)
        self.told.append(told or f"{name}={_shown(value)}")

    def __repr__(self) -> str:
        """Say what was spoilt."""
        return "; ".join(self.told)


def _above(root: Call, call: Call) -> list[str]:
    """Return the names of the arguments in which a call stands."""
    for place, name in root.places():
        value = place.arguments[name]
        if value is call or (isinstance(value, list) and any(inner is call for inner in value)):
            return [name, *_above(root, place)]
    return []


def _names_in(value: Any) -> list[str]:
    """Return what is called in a value, and the names of its arguments."""
    if isinstance(value, list):
        return [name for inner in value for name in _names_in(inner)]
    if not isinstance(value, Call):
        return []
    return [value.function.__name__, *value.arguments, *_names_in(list(value.arguments.values()))]


def _shown(value: Any) -> str:
    if isinstance(value, Call):
        return f"{value.function.__name__}({', '.join(f'{n}={_shown(v)}' for n, v in value.arguments.items())})"
    if isinstance(value, int) and abs(value) > 10**20:
        return f"about 10**{len(f'{value:x}') * 6 // 5}"
    return repr(value) if not isinstance(value, str) or len(value) < 80 else f"{value[:20]!r}... of {len(value)}"


# Valid ones


def train(trainer: Any, **arguments: Any) -> Any:
    """Train."""
    return trainer.train(**arguments)


def test(trainer: Any, **arguments: Any) -> Any:
    """Play a test."""
    return trainer.test(**arguments)


def custom(model: Any, loss_fn: Any, optimizers: Any, **arguments: Any) -> Any:
    """Make a CustomAgent; `optimizers`: a function of the model, or what is given as it is."""
    if optimizers is sgd:
        optimizers = sgd(model) if isinstance(model, torch.nn.Module) else []
    return mt.CustomAgent(model, loss_fn, optimizers, **arguments)


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of a model."""
    return torch.optim.SGD(model.parameters(), lr=0.1)


def loss(model: Any, batch: Any) -> Any:
    """Return a loss."""
    return (model(batch.obs).mean(1) - batch.reward).square().mean()


def command(**words: Any) -> None:
    """Run `marltrain train`; raises ConfigError of what it said where its exit code is 2."""
    line = ["train", str(words.pop("env")), "--no-progress"]
    for option, value in words.items():
        given = [f"{option.removeprefix('set ')}={value}"] if option.startswith("set ") else [str(value)]
        line += ["--set" if option.startswith("set ") else f"--{option}", *given]
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = command_line(line)
    if code == 2:
        raise mt.ConfigError(said.getvalue())
    if code:
        raise RuntimeError(f"exit code {code}: {said.getvalue()}")


def _trainer(env: Any, env_args: Any = None, **more: Any) -> Call:
    few: dict[str, Any] = {
        "num_train_envs": 2, "num_test_envs": 2, "batch_size": 4, "update_freq": 8, "test_freq": 50,
        "episodes_per_train": 20, "episodes_per_test": 2, "steps_per_train": 32, "updates_per_train": 3,
        "shared_memory": False, "vector": "dummy", "num_workers": None, "seed": 1, "team_reward": None,
        "train_fn": None, "test_fn": None, "save_best_fn": None, "save_last_fn": None, "stop_fn": None,
        "reward_metric": None, "callbacks": [], "run_dir": "run", "progress": False, "on_fault": None,
        "max_env_restarts": 3, "env_timeout": None, "collect": "serial",
        "test_freq_steps": 20, "max_test_steps": 10_000,
    }  # fmt: skip
    return Call(mt.DecentralizedTrainer, {"env": env, "env_args": env_args, **few, **more})


def _agents(name: str, env: Any, env_args: Any = None) -> Call:
    """Agents of `make_agents`, with every setting that their algorithm has."""
    both: dict[str, Any] = {
        "learning_rate": 1e-3, "gamma": 0.9, "max_grad_norm": 0.5, "optimizer": "adam", "batch_size": None,
        "update_freq": None, "device": "cpu", "jit_compile": False, "strategy": None,
        "network": Call(mt.MLP, {"hidden": (4,), "activation": "relu"}),
    }  # fmt: skip
    own: dict[str, dict[str, Any]] = {
        "ppo": {
            "epochs": 1, "minibatches": None, "clip": 0.2, "gae_lambda": 0.9, "entropy_coef": 0.01, "value_coef": 0.5,
            "value_clip": None, "critic_learning_rate": None, "critic_network": None, "log_std": 0.0,
            "normalize_advantage": True,
        },
        "dqn": {
            "epsilon": Call(mt.linear, {"start": 1.0, "stop": 0.1, "steps": 50}), "capacity": 40, "learning_starts": 0,
            "update_per_step": 0.25, "n_step": 1, "double": True, "dueling": False, "target_sync": 2, "tau": None,
        },
    }  # fmt: skip
    settings = {**both, **own[name]} if name in own else {}
    making = {"name": name, "env": env, "env_args": env_args, "share": False, "backend": "torch", "seed": 2}
    return Call(mt.make_agents, {**making, **settings})


def _training(trainer: Call, agents: Any, players: int) -> Call:
    masks = {"learning_mask": [1] * players, "exploration_mask": [1] * players}
    more = {"plot": False, "test_agents": None, "resume": None, "any_threads": False}
    return Call(train, {"trainer": trainer, "agents": agents, **masks, **more})


def _ppo() -> Call:
    env_args = {"num_rounds": 4, "observe_last_actions": True}
    often = {"every_steps": 16, "every_episodes": None, "every_minutes": None, "keep": 2, "best": False, "memory": True}
    trainer = _trainer(GAME, Call(dict, dict(env_args)), callbacks=[Call(mt.Checkpoint, often)])
    return _training(trainer, _agents("ppo", GAME, env_args), 2)


def _dqn() -> Call:
    return _training(_trainer(BOARD), _agents("dqn", BOARD), 2)


def _mixed() -> Call:
    """One learns, one plays at random."""
    env_args = {"players": 2, "choices": 3, "length": 4}
    random = Call(mt.RandomAgent, {"seed": 3})
    agents = [Call(_first, {"made": _agents("dqn", Identity, env_args)}), random]
    line_up = _training(_trainer(Identity, env_args), agents, 2)
    line_up.arguments["learning_mask"] = [1, 0]
    return line_up


def _first(made: Any) -> Any:
    return made[0]


def _alone() -> Call:
    env_args = {"sutton_barto_reward": False}
    return _training(_trainer(POLE, env_args), _agents("ppo", POLE, env_args), 1)


def _own() -> Call:
    """Agents with a model and a loss of one's own."""
    settings: dict[str, Any] = {
        "gamma": 0.9, "epsilon": Call(mt.exponential, {"start": 1.0, "stop": 0.1, "steps": 50}), "noise": 0.1,
        "max_grad_norm": 1.0, "batch_size": 4, "update_freq": 8, "update_per_step": 0.25, "learning_starts": 0,
        "epochs": 1, "minibatches": None, "act_fn": None, "after_update": None, "seed": 5, "jit_compile": False,
        "strategy": None,
    }  # fmt: skip
    agents = []
    for _ in range(2):
        model = Call(torch.nn.Linear, {"in_features": 6, "out_features": 3})
        memory = Call(mt.Replay, {"capacity": 40, "n_step": 1})
        agents.append(Call(custom, {"model": model, "loss_fn": loss, "optimizers": sgd, "memory": memory, **settings}))
    return _training(_trainer(GAME, {"num_rounds": 4}), agents, 2)


def _testing() -> Call:
    return Call(test, {"trainer": _trainer(BOARD), "agents": _agents("random", BOARD), "episodes": 2})


def _command() -> Call:
    words = {
        "env": GAME, "algo": "ppo", "env-arg": "num_rounds=4", "run-dir": "run", "checkpoint": "16",
        "team-reward": "sum", "backend": "torch", "num-train-envs": "2", "num-test-envs": "2", "batch-size": "4",
        "update-freq": "8", "test-freq": "50", "episodes-per-train": "20", "episodes-per-test": "2",
        "steps-per-train": "32", "updates-per-train": "3", "seed": "1", "vector": "dummy", "set network": "MLP((4,))",
        "set epochs": "1", "set learning_rate": "1e-3", "set clip": "linear(0.2, 0.1, 50)", "set gamma": "0.9",
        "set share": "True",
    }  # fmt: skip
    return Call(command, words)


VALID: dict[str, Callable[[], Call]] = {
    "ppo": _ppo, "dqn": _dqn, "mixed": _mixed, "alone": _alone, "own": _own, "test": _testing, "command": _command,
}  # fmt: skip

HELPERS = (dict, train, test, custom, _first)
"""Functions of this file: their arguments are not marltrain's to check. Nor are those that only hold parts together:"""
OURS = ("trainer", "made", "in_features", "out_features")
