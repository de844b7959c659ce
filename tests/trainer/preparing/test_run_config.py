import json
import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

import marltrain as mt
from marltrain.core.processor import processor
from marltrain.tools.run_files.config import plan_of_config
from marltrain.trainer.preparing.run_config import _is_json
from marltrain.trainer.reporting.functions import described_function
from tests.trainer.running import dqn, ppo, trainer


def test_config_json_records_versions_and_hardware():
    model = torch.nn.Linear(3, 3)
    custom = mt.CustomAgent(model, lambda model, batch: model(batch.obs).mean(), torch.optim.SGD(model.parameters()))
    agents = [ppo(jit_compile="require", device="cpu")[0], custom]
    trainer(steps_per_train=3).train(agents, [0, 1], plot=False)
    config = json.loads(Path("run/config.json").read_text())
    first, second = (seat["agent"] for seat in config["seats"])
    assert (first["backend"], first["device"], first["jit_compile"]) == ("torch", "cpu", "require")
    assert (second["type"], second["backend"]) == ("CustomAgent", "torch")
    assert config["memory_bytes"] > 0
    versions = config["versions"]
    assert (versions["python"], versions["numba"]) == (platform.python_version(), version("numba"))
    assert config["processor"] == {"name": processor(), "cores": os.cpu_count()}


def test_memory_bytes_include_the_trees_of_priorities():
    """Two agents with a tree for each player that they read, here of all players."""
    result = {}
    for name, memory in (("uniform", None), ("prioritized", mt.Replay(prioritized=mt.Prioritized()))):
        agents = dqn(memory=memory, capacity=500)
        playing = trainer(steps_per_train=30, run_dir=name, shared_memory=True)
        playing.train(agents, [1, 1], plot=False)
        result[name] = json.loads((Path(name) / "config.json").read_text())["memory_bytes"]
    assert playing.run is not None
    (scheduler,) = playing.run.context.schedulers
    trees: Any = scheduler._reader
    assert len(trees.choice._players) == 4
    assert result["prioritized"] - result["uniform"] == trees.choice.nbytes > 4 * 500 * 8


def test_what_a_file_cannot_hold_is_named_and_refused(tmp_path):
    """The given batch size, 64, equals the default number, which an algorithm would replace."""

    def lowest(returns):
        return returns.min()

    result = trainer(steps_per_train=3, batch_size=64, stop_fn=lambda metric, episode: False, reward_metric=lowest)
    result.train(ppo(), [1, 1], plot=False)
    config = json.loads(Path("run/config.json").read_text())
    assert config["reward_metric"] == described_function(lowest) and len(config["reward_metric"]["code"]) == 64
    assert config["code"] == ["stop_fn", "reward_metric"] and [seat["agent_index"] for seat in config["seats"]] == [
        0,
        1,
    ]
    assert "batch_size" in config["given"] and "episodes_per_train" not in config["given"]
    with pytest.raises(
        mt.ConfigError, match=r"the run has code of your own: stop_fn, reward_metric\. Train it from Python"
    ):
        plan_of_config(Path("run/config.json"))
    Path("run/config.json").write_text(json.dumps({**config, "code": []}))
    assert plan_of_config(Path("run/config.json")).trainer["batch_size"] == 64


@pytest.mark.parametrize(
    ("value", "known"), [((1, [None, "a", 2.5]), True), ({"a": {1}}, False), ([print], False), (math.inf, False)]
)
def test_arguments_that_json_holds(value, known):
    assert _is_json(value) is known
