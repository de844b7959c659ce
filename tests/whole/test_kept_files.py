"""Files of released versions are read: see `tests.whole.kept_files`."""

import json
import shutil
import tomllib
from typing import cast

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.core.errors import MarlTrainError
from marltrain.tools.evaluating.replays import read_replay
from marltrain.tools.run_files.reading import read_plan, read_settings
from marltrain.tools.saved_run import open_run
from tests.whole.kept_files import AGENTS, BOARD, FOLDER, RUN, SMALL, greedy, make, observations

VERSIONS = sorted(path.name for path in FOLDER.iterdir())


@pytest.fixture(params=VERSIONS)
def kept(request):
    return FOLDER / request.param


def test_the_version_of_this_package_has_files():
    assert mt.__version__ in VERSIONS


@pytest.mark.parametrize("name", AGENTS)
def test_agents_act_as_they_did(kept, name):
    agents = mt.load(kept / "agents" / name)
    expected = json.loads((kept / "actions.json").read_text(encoding="utf-8"))[name]
    for agent, actions in zip(agents, expected, strict=True):
        np.testing.assert_allclose(greedy(agent), actions, atol=1e-4)


def test_weights_alone_are_loaded(kept):
    fresh = cast(mt.LearningAgent, mt.make_agents("ppo", BOARD, seed=7, network=SMALL)[0])
    fresh.load_weights(kept / "weights", player=0)
    assert greedy(fresh) == greedy(make("ppo")[0])


def test_a_run_is_opened(kept):
    run = open_run(kept / "run")
    assert (run.env, run.chosen) == (BOARD, "best")
    history = pd.read_parquet(kept / "run" / "history.parquet")
    assert history["env_steps"].iloc[-1] == 300 and {"metric", "return/player_1"} <= set(history.columns)
    assert len(pd.read_parquet(kept / "run" / "episodes.parquet")) > 0


def test_a_checkpoint_is_resumed_or_refused_with_the_version(kept, tmp_path):
    """Checkpoints of the newest kept version are resumed; those of earlier ones may be refused by their schema."""
    shutil.copytree(kept / "run", tmp_path / "run")
    agents = mt.make_agents("dqn", BOARD, seed=0, network=SMALL, capacity=200, learning_starts=50)
    trainer = mt.DecentralizedTrainer(
        BOARD, steps_per_train=500, run_dir=tmp_path / "run",
        callbacks=[mt.Checkpoint(every_steps=100, keep=1)], **RUN,
    )  # fmt: skip
    try:
        result = trainer.train(agents, learning_mask=[1, 1], plot=False, resume=tmp_path / "run")
    except MarlTrainError as error:
        assert kept.name != VERSIONS[-1] and f"written by marltrain {kept.name}" in str(error)
    else:
        assert result["num_collected_steps"] == 500 and len(result["history"]) > 3


def test_demonstrations_replays_and_exported_policies_are_read(kept):
    assert len(mt.Demonstrations.load(kept / "demonstrations").action) > 0
    assert read_replay(kept / "evaluation").env == BOARD
    agent = mt.load(kept / "agents" / "ppo")[0]
    exported = mt.load_exported(kept / "policy.onnx")
    assert np.asarray(exported.act(observations(agent))[0]).tolist() == greedy(agent)


def test_text_files_are_read(kept):
    plan = read_plan(kept / "run.toml")
    assert (plan.env, plan.algo, plan.trainer) == (BOARD, "dqn", {"steps_per_train": 100, "seed": 1})
    assert plan.settings == {"network": SMALL}
    assert read_settings(kept / "settings.toml") == tomllib.loads((kept / "settings.toml").read_text(encoding="utf-8"))
