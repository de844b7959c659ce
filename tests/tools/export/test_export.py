"""Exported files hold the agent: in onnxruntime, torch.export and TensorFlow, from either framework."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces
from torch import nn

import examples.play_exported as play_exported
import marltrain as mt
from marltrain.tools.export import description as describing, export as exporting
from marltrain.tools.export.check import near_ties
from marltrain.tools.export.function import PolicyFunction
from marltrain.tools.export.loading import SUFFIXES
from tests.tiers import LONG
from tests.tools.export.agents import ARM, CASES, FLAT, FOUR, NETWORK, WHEELS, named, of_registry, with_statistics

EVERY = [(case, format, backend) for case in CASES for format in SUFFIXES for backend in ("torch", "tensorflow")]
SHORT = [("sac, gru", "saved_model", "tensorflow")]


@pytest.mark.parametrize(("case", "format", "backend"), EVERY if LONG else SHORT)
def test_a_file_computes_what_the_agent_does_and_is_refused_by_another_version(
    case, format, backend, tmp_path, monkeypatch
):
    agent = CASES[case](backend=backend)
    if case == "ppo":
        with_statistics(agent)
    path = tmp_path / f"policy{SUFFIXES[format]}"
    for sampling in {False, LONG and agent.algorithm.sampling is not None}:
        checked = mt.export(agent, path, format=format, sampling=sampling, players=("wolf",), env="own/game")
        assert checked.observations == 1_000 and max(checked.differences.values()) <= 1e-5
        policy = mt.load_exported(path)
        assert policy.description["algorithm"] == agent.algorithm.name
        assert policy.description["players"] == ["wolf"] and policy.description["env"] == "own/game"
        assert (policy.observation_space, policy.action_space) == (agent.observation_space, agent.action_space)
    monkeypatch.setattr(describing, "VERSION", 2)
    with pytest.raises(mt.SaveError, match=rf"{path.name}: a policy of format version 1, .* reads version 2"):
        mt.load_exported(path)


if LONG:

    @pytest.mark.parametrize("name", named())
    @pytest.mark.parametrize("format", SUFFIXES)
    def test_agents_of_every_algorithm_become_files(name, format, tmp_path):
        agent = of_registry(name)
        masked = isinstance(agent.action_space, spaces.Discrete)
        checked = mt.export(agent, tmp_path / f"policy{SUFFIXES[format]}", format=format, legal=masked)
        assert max(checked.differences.values()) <= 1e-5


@pytest.mark.parametrize("format", SUFFIXES if LONG else ["onnx"])
def test_parts_whose_names_collide_become_inputs_of_their_own(format, tmp_path):
    """By the actions of the agent, which reads every part: numbers at a.b and at a/b, images at a.c and at a/c.

    The file names no folder of the machine that wrote it.
    """
    view, pair = spaces.Box(0, 255, (4, 4, 3), np.uint8), spaces.Box(-9, 9, (2,), np.float32)
    inner = spaces.Dict({"b": pair, "c": view})
    space = spaces.Dict({"a.b": pair, "a": inner, "a.c": view, "vector": view, "A": spaces.Discrete(3), "\u00fc": pair})
    agent: Any = mt.PPO(space, spaces.Discrete(4), network=mt.MLP((16,)), seed=2)
    path = tmp_path / f"policy{SUFFIXES[format]}"
    assert max(mt.export(agent, path, format=format).differences.values()) <= 1e-5
    policy = mt.load_exported(path)
    assert len({port.name.lower() for port in policy.inputs}) == len(policy.inputs) == 7
    space.seed(0)
    seen = [space.sample() for _ in range(40)]
    actions = [int(policy.act(each)[0]) for each in seen]
    assert actions == [int(agent.act(each)) for each in seen] and len(set(actions)) > 1
    files = [file for file in (path, *path.rglob("*")) if file.is_file()]
    assert files and not any(b"site-packages" in file.read_bytes() for file in files)
    assert not any(bytes(Path(mt.__file__).parent) in file.read_bytes() for file in files)


def test_an_onnx_file_in_onnxruntime_without_marltrain(tmp_path):
    board = spaces.Dict({"observation": spaces.Box(0, 1, (3, 3, 2), np.int8), "action_mask": spaces.MultiBinary(9)})
    agent = with_statistics(mt.PPO(board, spaces.Discrete(9), network=NETWORK, normalize_observations=True, seed=1))
    assert max(mt.export(agent, tmp_path / "policy.onnx", players=("wolf",)).differences.values()) <= 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx")
    assert [(i.name, i.shape, i.type) for i in session.get_inputs()] == [
        ("observation", ["batch", 3, 3, 2], "tensor(float)"), ("legal", ["batch", 9], "tensor(bool)"),
    ]  # fmt: skip
    rng = np.random.default_rng(1)
    observation, legal = rng.integers(0, 2, (1_000, 3, 3, 2)).astype(np.float32), rng.random((1_000, 9)) < 0.5
    legal[:, 2] = True
    action, probabilities = session.run(["action", "probabilities"], {"observation": observation, "legal": legal})
    np.testing.assert_array_equal(action, agent.act(observation, legal))
    assert legal[np.arange(1_000), action].all() and probabilities[~legal].max() == 0
    one = session.run(["action"], {"observation": observation[:1], "legal": legal[:1]})[0]
    assert one.shape == (1,) and one[0] == action[0]
    kept = json.loads(session.get_modelmeta().custom_metadata_map["marltrain"])
    assert (kept["version"], kept["marltrain"], kept["players"]) == (1, mt.__version__, ["wolf"])
    policy: Any = mt.load_exported(tmp_path / "policy.onnx")
    assert policy.act({"observation": observation[0], "action_mask": legal[0]})[0] == action[0]
    with pytest.raises(mt.SpecError, match="no action is legal"):
        policy.act(observation[0], legal=[False] * 9)
    _plays_as_the_agent(session, agent)
    _other_versions_are_refused(tmp_path / "policy.onnx")


def _plays_as_the_agent(session, agent):
    class Same:
        def run(self, names, given):
            return [agent.act(given["observation"], given["legal"])]

    results = [play_exported.play(policy, games=20, seed=3) for policy in (session, Same())]
    assert results[0] == results[1] and -1 <= results[0] <= 1


def _other_versions_are_refused(path):
    data = path.read_bytes()
    assert data.count(b'"version": 1}') == 1
    path.write_bytes(data.replace(b'"version": 1}', b'"version": 2}'))
    with pytest.raises(mt.SaveError, match=r"policy.onnx: a policy of format version 2, .* reads version 1"):
        mt.load_exported(path)
    path.write_bytes(data.replace(b"marltrain-policy", b"marltrain-folder"))
    with pytest.raises(mt.SaveError, match="holds no description of marltrain"):
        mt.load_exported(path)


def test_masks_of_infos_follow_from_the_environment_that_an_agent_was_made_for(tmp_path):
    """Taxi's observation is a number, and its infos hold the mask; a saved agent knows it, too."""

    def inputs(agent: Any) -> list[str]:
        return [port.name for port in PolicyFunction(agent, sampling=False).inputs]

    taxi = "gymnasium/Taxi-v4"
    mt.save(tmp_path / "agent", mt.make_agents("dqn", taxi, network=NETWORK, seed=0))
    (loaded,) = mt.load(tmp_path / "agent")
    assert inputs(loaded) == ["observation", "legal"]
    by_class = mt.DQN(spaces.Discrete(500), spaces.Discrete(6), network=NETWORK)
    assert not by_class.masked and inputs(by_class) == ["observation"]
    mt.DecentralizedTrainer(taxi, run_dir=False, progress=False, num_test_envs=1).test([by_class], 1)
    assert by_class.masked and inputs(by_class) == ["observation", "legal"]


def test_carries_and_samples_of_a_loaded_policy(tmp_path):
    agent = CASES["ppo, gru"]()
    mt.export(agent, tmp_path / "policy.pt2", format="torch", sampling=True)
    policy = mt.load_exported(tmp_path / "policy.pt2")
    observation = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    carry: Any = None
    own: Any = None
    for _ in range(3):
        action, carry = policy.act(observation, None, carry, rng=np.random.default_rng(5))
        _, own = agent.act_with_carry(observation, own, np.ones((3, 4), bool))
    np.testing.assert_allclose(carry["carry"], own["actor"], atol=1e-6)
    again, _ = policy.act(observation, None, None, rng=np.random.default_rng(5))
    assert action.shape == again.shape == (3,) and action.min() >= FOUR.start
    with pytest.raises(mt.ConfigError, match="give act a generator"):
        policy.act(observation)


def test_what_cannot_be_exported_is_refused(tmp_path, monkeypatch):
    ppo, dqn = CASES["ppo"](), CASES["dqn"]()
    with pytest.raises(mt.ConfigError, match="RandomAgent"):
        mt.export(mt.RandomAgent(), tmp_path / "a.onnx")
    with pytest.raises(mt.ConfigError, match="the policy of a DQN is deterministic"):
        mt.export(dqn, tmp_path / "a.onnx", sampling=True)
    with pytest.raises(mt.ConfigError, match="legal=True"):
        mt.export(mt.PPO(FLAT, ARM, network=NETWORK), tmp_path / "a.onnx", legal=True)
    with pytest.raises(mt.ConfigError, match=r"writes a file whose name ends in \.onnx"):
        mt.export(ppo, tmp_path / "a.pt2")
    with pytest.raises(mt.ConfigError, match=r"format.*onnx, torch, saved_model.*'onx'"):
        mt.export(ppo, tmp_path / "a.onnx", format="onx")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(mt.SaveError, match="holds other things than an exported policy"):
        mt.export(ppo, tmp_path, format="saved_model")
    monkeypatch.setitem(sys.modules, "onnx", None)  # as if it were absent
    with pytest.raises(mt.ConfigError, match=r"onnx.*pip install"):
        mt.export(ppo, tmp_path / "a.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def first_row_worst(made):
    """Return the outputs with the worst action in the first row."""
    action = made["action"].copy()
    action[0] = made["values"][0].argmin()
    return {**made, "action": action}


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (CASES["ppo, box"], lambda made: {**made, "action": made["action"] + np.float32(2e-5)}, "action by 2.01e-05"),
        (CASES["dqn, noisy"], lambda made: {**made, "values": made["values"] * np.nan}, "values by nan"),
        (lambda: mt.DQN(FLAT, spaces.Discrete(400), seed=1, network=NETWORK), first_row_worst, "action by inf"),
    ],
)
def test_a_file_that_differs_from_its_agent_is_not_kept(make, change, message, tmp_path, monkeypatch):
    class Changed:
        """The policy of the agent with changed outputs."""

        def __init__(self, path):
            self.function = PolicyFunction(agent, sampling=False)

        def arrays(self, observation):
            return {"observation": observation}, True

        def run(self, inputs):
            return change(self.function.in_arrays(agent.backend, self.function.own_networks(), inputs))

    agent = make()
    monkeypatch.setattr(exporting, "_writer", lambda format: lambda function, description, path: path.write_text("x"))
    monkeypatch.setattr(exporting, "load_exported", Changed)
    with pytest.raises(mt.SaveError, match=f"{message}.*1e-05"):
        mt.export(agent, tmp_path / "policy.pt2", format="torch", observations=50)
    assert not list(tmp_path.iterdir())


def test_only_legal_choices_with_equal_numbers_are_ties():
    """Values 7 and 7 + 2e-5 are equal relative to their size; the two parts of a MultiDiscrete are compared apart."""
    values = np.array([[7, 1, 7 + 2e-5, 1]] * 5)
    legal = np.array([[True] * 4] * 4 + [[True, True, False, True]])
    expected = {"action": np.array([2, 2, 2, 2, 2]), "values": values}
    result = np.array([4, 2, 3, 6, 4])
    assert near_ties(FOUR, result, expected, legal).tolist() == [True, True, False, False, False]
    expected = {
        "action": np.array([[1, 5], [1, 5], [1, 5]]),
        "probabilities": np.array([[0.5, 0.5, 0.2, 0.6, 0.2]] * 3),
    }
    result = np.array([[2, 5], [2, 7], [2, 6]])
    assert near_ties(WHEELS, result, expected, None).tolist() == [True, True, False]
    legal = np.array([[True] * 4 + [second] for second in (True, False, True)])  # the masks are side by side
    assert near_ties(WHEELS, result, expected, legal).tolist() == [True, False, False]
    assert near_ties(WHEELS, result, {"action": result}, None).tolist() == [False] * 3


def test_a_module_of_your_own(tmp_path):
    def actor():
        return nn.Sequential(nn.Linear(5, 7), nn.Dropout(0.5), nn.ReLU(), nn.Linear(7, 4))

    agent = mt.PPO(FLAT, FOUR, network=actor, critic_network=NETWORK, seed=1)
    for format in ("torch", "onnx") if LONG else ("torch",):
        checked = mt.export(agent, tmp_path / f"policy{SUFFIXES[format]}", format=format)
        assert checked.differences["probabilities"] <= 1e-5
    with pytest.raises(mt.ConfigError, match="'actor' is a PyTorch module of your own"):
        mt.export(agent, tmp_path / "policy", format="saved_model")


def test_other_files_are_no_policies(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("a.txt", "not an exported policy"),
        ("b.onnx", "no such file"),
        ("folder", "no description"),
    ):
        with pytest.raises(mt.SaveError, match=message):
            mt.load_exported(tmp_path / name)
    (tmp_path / "a.onnx").write_text("text")
    with pytest.raises(mt.SaveError, match=r"a\.onnx: onnxruntime cannot read it"):
        mt.load_exported(tmp_path / "a.onnx")
