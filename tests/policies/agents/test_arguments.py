"""Arguments of agent classes: what signatures and help show, and what type checkers accept."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import dataclass, fields
from typing import Any

import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.agents.arguments import AgentArguments
from marltrain.policies.agents.custom import CustomArguments
from marltrain.policies.algorithms.dqn import DQNAlgorithm, DQNSettings
from marltrain.policies.algorithms.ppo import PPOSettings
from tests.tiers import LONG


@dataclass(frozen=True, kw_only=True)
class MineSettings(DQNSettings):
    patience: int = mt.setting(3, doc="how often", low=1, per_row=True)


class MineAlgorithm(DQNAlgorithm):
    name, Settings = "mine", MineSettings


def parameters(kind: Any) -> list[str]:
    """The signature as text, one part for each parameter."""
    return [str(parameter) for parameter in inspect.signature(kind).parameters.values()]


def test_signature_of_an_agent_class():
    signature = inspect.signature(mt.PPO)
    names = list(signature.parameters)
    assert names[:4] == ["observation_space", "action_space", "backend", "device"]
    assert set(names) == {f.name for f in (*fields(AgentArguments), *fields(PPOSettings))}
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    assert kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2 + [inspect.Parameter.KEYWORD_ONLY] * (len(names) - 2)
    assert signature.parameters["observation_space"].default is inspect.Parameter.empty
    clip = signature.parameters["clip"]
    assert (clip.default, clip.annotation) == (0.2, float | mt.Schedule | None)


def test_common_arguments_are_those_of_the_base_class():
    """Written twice, since the base class takes settings of any algorithm."""
    own = inspect.signature(mt.LearningAgent.__init__, eval_str=True).parameters
    *common, settings = [parameter for name, parameter in own.items() if name != "self"]
    assert settings.kind is inspect.Parameter.VAR_KEYWORD
    arguments = inspect.signature(AgentArguments, eval_str=True).parameters
    assert {p.name: (p.default, p.annotation) for p in common} == {
        name: (p.default, p.annotation) for name, p in arguments.items()
    }
    assert parameters(mt.LearningAgent)[-1] == "**settings: 'Any'"


def test_an_agent_class_of_ones_own_shows_its_settings_without_a_word():
    class Mine(mt.LearningAgent):
        """Agent of a test."""

        algorithm_class = MineAlgorithm

    class Further(Mine):
        """One with an argument more, and a default of its own."""

        def __init__(
            self, observation_space: Any, action_space: Any, extra: int = 1, *, gamma: float = 0.5, **rest: Any
        ):
            super().__init__(observation_space, action_space, gamma=gamma, **rest)

    class Fixed(Mine):
        """One that takes no settings."""

        def __init__(self, size: int):
            self.size = size

    assert "patience: int = 3" in parameters(Mine)
    assert parameters(Further)[2:4] == ["extra: 'int' = 1", "gamma: 'float' = 0.5"]
    assert {"patience: int = 3", "seed: int | None = None"} < set(parameters(Further))
    assert sum(part.startswith("gamma") for part in parameters(Further)) == 1
    assert parameters(Fixed) == ["size: 'int'"]
    lines = (Mine.__doc__ or "").splitlines()
    assert lines[0] == "Agent of a test."
    assert lines[-1] == "patience: how often"
    assert "backend: framework, torch or tensorflow" in lines
    assert Further.__doc__ == "One with an argument more, and a default of its own."


def test_signature_of_a_custom_agent():
    """A class of one's own that passes settings on shows them, too."""

    class Mine(mt.CustomAgent):
        def __init__(self, size: int, *, gamma: float = 0.5, **settings: Any):
            super().__init__(None, [], None, gamma=gamma, **settings)

    names = list(inspect.signature(mt.CustomAgent).parameters)
    assert names[:5] == ["model", "loss_fn", "optimizers", "act_fn", "after_update"]
    assert sorted(names) == sorted(f.name for f in fields(CustomArguments))
    own = list(inspect.signature(mt.CustomAgent.__init__).parameters.values())[1:-1]
    arguments = inspect.signature(CustomArguments).parameters
    assert [(p.name, p.kind, p.default) for p in own] == [
        (name, p.kind, p.default) for name, p in arguments.items() if name in {each.name for each in own}
    ]
    assert parameters(Mine)[:2] == ["size: 'int'", "gamma: 'float' = 0.5"]
    assert {"epsilon", "memory"} < set(inspect.signature(Mine).parameters)


@pytest.mark.parametrize("misspelled", ["bakend", "frame_stak", "learning_rat"])
def test_a_misspelled_argument_gets_a_hint_among_settings_and_other_arguments(misspelled):
    make: Any = mt.PPO
    meant = {"bakend": "backend", "frame_stak": "frame_stack", "learning_rat": "learning_rate"}[misspelled]
    with pytest.raises(mt.ConfigError, match=f"no setting '{misspelled}'. Did you mean '{meant}'"):
        make(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), **{misspelled: 1})


def test_an_integer_hyperparameter_remains_an_integer_when_it_is_saved():
    class Mine(mt.LearningAgent):
        algorithm_class = MineAlgorithm

    agent: Any = Mine(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), patience=4, gamma=1, seed=0)
    agent.hyper.patience = 5
    saved = agent.state().info["learner"]["hyper"]
    assert [(type(saved[name]), saved[name]) for name in ("patience", "gamma")] == [(int, 5), (float, 1.0)]
    with pytest.raises(mt.ConfigError, match=r"setting 'batch_sise' does not exist\. Did you mean 'batch_size'"):
        agent.hyper.batch_sise = 3


CALLS = """
from dataclasses import dataclass
from typing import Any
from gymnasium import spaces
import marltrain as mt

obs, act = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
off: Any = None

@dataclass(frozen=True, kw_only=True)
class MineSettings(mt.Settings):
    patience: int = mt.setting(3, doc="how often")

@dataclass(frozen=True, kw_only=True)
class MineArguments(mt.AgentArguments, MineSettings):
    pass

class Mine(mt.LearningAgent):
    @mt.accepts(MineArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)

class Plain(mt.LearningAgent):
    pass

mt.PPO(obs, act)
mt.PPO(obs, action_space=act, clip=mt.linear(0.1, 0.2, 3), gamma=1, seed=1, backend="torch", network=mt.MLP())
mt.DQN(obs, act, strategy=mt.DataParallel(processes=2), tau=None)
Mine(obs, act, patience=4, weight_decay=0.1, frame_stack=2)
Plain(obs, act, patience=4, seed=1)
right: Mine = Mine(obs, act)
mt.CustomAgent(None, print, [], epsilon=0.1, memory=mt.Replay(10))
mt.CustomAgent(None, print, [], epsilom=0.1)  # wrong: Unexpected keyword argument "epsilom"
mt.CustomAgent(None, print, [], epochs="2")  # wrong: Argument "epochs" to "CustomAgent" has incompatible type "str"
mt.OffPolicyAgent(off, learning_start=3)  # wrong: Unexpected keyword argument "learning_start"
mt.PPO(obs)  # wrong: Missing positional argument "action_space"
mt.PPO(obs, act, lerning_rate=1)  # wrong: Unexpected keyword argument "lerning_rate"
mt.PPO(obs, act, clip="x")  # wrong: Argument "clip" to "PPO" has incompatible type "str"
mt.PPO(obs, act, epsilon=0.1)  # wrong: Unexpected keyword argument "epsilon"
mt.PPO(obs, act, 3)  # wrong: Too many positional arguments
mt.DQN(obs, act, seed="1")  # wrong: Argument "seed" to "DQN" has incompatible type "str"
Mine(obs, act, patience="long")  # wrong: Argument "patience" to "Mine" has incompatible type "str"
Mine(obs, act, clip=0.2)  # wrong: Unexpected keyword argument "clip"
Plain(obs, act, seed="1")  # wrong: Argument "seed" to "Plain" has incompatible type "str"
"""


if LONG:  # mypy reads the package and its imports: half a minute

    @pytest.mark.timeout(600)
    def test_mypy_accepts_right_calls_and_rejects_wrong_ones(tmp_path):
        file = tmp_path / "calls.py"
        file.write_text(CALLS)
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
        found = dict(line.split(":", 2)[1:] for line in done.stdout.splitlines() if ": error: " in line)
        expected = {
            str(i): line.split("# wrong: ")[1] for i, line in enumerate(CALLS.splitlines(), 1) if "# wrong" in line
        }
        assert found.keys() == expected.keys(), done.stdout + done.stderr
        for number, message in expected.items():
            assert message in found[number]
