"""Both frameworks in whole runs: the same tables, agents that move from one to the other, a table with both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from tests.gymnasium_toys import Film
from tests.policies.some_batches import IMAGE, PICTURE_AND_VECTOR, VECTOR, some_obs, some_rollout, some_transitions
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.running import SMALL, changed, dqn, ppo, trainer, weights

SPREAD, ARGS = "mpe2/simple_spread_v3", {"N": 3, "max_cycles": 25}
BOTH = ("torch", "tensorflow")


def run(algo: str, backend: str, env: Any, env_args: Any, steps: int, **settings: Any) -> tuple[Any, list[Any]]:
    agents = mt.make_agents(algo, env, env_args=env_args, seed=3, backend=backend, network=mt.MLP((16, 16)), **settings)
    play = trainer(
        env, env_args, num_train_envs=4, update_freq=100, batch_size=32, test_freq=10, steps_per_train=steps, seed=5
    )
    return play.train(agents, [1] * len(agents), plot=False), agents


@pytest.mark.parametrize(
    ("algo", "env", "env_args", "steps"),
    [
        ("ppo", Identity, {"players": 2, "length": 5}, 400),
        ("dqn", Identity, {"players": 2, "length": 5}, 400),
        *LONG * [("ppo", SPREAD, ARGS, 1000), ("dqn", SPREAD, ARGS, 1000)],
    ],
)
def test_one_seed_gives_the_same_tables_in_both(algo, env, env_args, steps):
    """PPO explores by sampling and DQN by chance and by its values, so actions that differ would be seen at once."""
    settings: dict[str, Any] = {"learning_starts": 100} if algo == "dqn" else {}
    runs = [run(algo, backend, env, env_args, steps, **settings)[0] for backend in BOTH]
    for table in ("history", "episodes"):
        mine, theirs = (result[table].drop(columns="seconds") for result in runs)
        assert list(mine.columns) == list(theirs.columns)
        assert len(mine) > 1
        for name in mine.select_dtypes("number"):
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-2, atol=1e-2, err_msg=name)
    assert runs[0]["num_gradient_steps"] == runs[1]["num_gradient_steps"]


CNN = mt.CNN(hidden=(8,), filters=((4, 3, 2),))
KINDS = [
    pytest.param(
        mt.PPO,
        VECTOR,
        spaces.Box(-2, 1, (2,), np.float32),
        {"policy": "state_gaussian", "normalize_values": "popart", "normalize_returns": True, "kl_penalty": 0.5},
        id="ppo, normalized",
    ),
    pytest.param(mt.DQN, IMAGE, spaces.Discrete(3), {"network": CNN, "target_sync": 2}, id="dqn, images"),
    *LONG * [
        pytest.param(mt.PPO, VECTOR, spaces.Box(-2, 1, (2,), np.float32), {"optimizer": "rmsprop"}, id="ppo, box"),
        pytest.param(
            mt.PPO, PICTURE_AND_VECTOR, spaces.MultiDiscrete([2, 3]), {"network": CNN}, id="ppo, image and vector"
        ),
        pytest.param(mt.DQN, VECTOR, spaces.Discrete(3), {"dueling": True, "tau": 0.1}, id="dqn, dueling"),
    ],
]  # fmt: skip


def learn(agent: Any, space: Any, actions: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(3):
        batch: Any = (
            some_rollout(rng, space, actions, [9]) if isinstance(agent, mt.PPO)
            else some_transitions(rng, space, 3, 1, 9)
        )  # fmt: skip
        agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=5)


@pytest.mark.parametrize("back", [False, True] if LONG else [False], ids=lambda back: "to torch" * back)
@pytest.mark.parametrize(("make", "space", "actions", "settings"), KINDS)
def test_an_agent_saved_from_one_loads_in_the_other(make, space, actions, settings, back, tmp_path):
    """The same weights and moments to the bit, the same actions, and it goes on learning as it would have.

    From TensorFlow to torch goes every other kind in the short tier. All algorithms are in the suite of the registry.
    """
    kinds = [kind.values for kind in KINDS]
    source, goal = BOTH[:: -1 if back or (not LONG and kinds.index((make, space, actions, settings)) % 2) else 1]
    agent = make(space, actions, seed=0, backend=source, **settings)
    learn(agent, space, actions, 0)
    mt.save(tmp_path / "agent", agent)
    (moved,) = mt.load(tmp_path / "agent", backend=goal)
    (same,) = mt.load(tmp_path / "agent")
    assert [one.backend.name for one in (moved, same)] == [goal, source]
    assert changed(weights([agent, agent]), weights([moved, same])) == [False, False]
    seen: Any = some_obs(np.random.default_rng(1), space, (40,))
    if isinstance(seen, dict):
        seen = {"place": seen["vector"], "view": seen["view"]}
    for explore in (False, True):
        np.testing.assert_allclose(agent.act(seen, explore=explore), moved.act(seen, explore=explore), atol=1e-5)
    for one in (agent, moved):
        learn(one, space, actions, 1)
    for name, array in weights([agent])[0].items():
        np.testing.assert_allclose(array, weights([moved])[0][name], rtol=1e-5, atol=2e-5, err_msg=name)


def test_stacked_frames_move_too(tmp_path):
    """From a real run on frames into another framework, and on in training."""
    env = mt.FrameStack(Film, 3)
    args = {"length": 6, "size": 16}
    agents = mt.make_agents("dqn", env, env_args=args, seed=0, network=CNN, learning_starts=0, backend="tensorflow")
    few = {"num_train_envs": 2, "num_test_envs": 1, "steps_per_train": 24, "batch_size": 8}
    trainer(env, args, **few).train(agents, [1], plot=False)
    mt.save(tmp_path / "agent", agents)
    moved = mt.load(tmp_path / "agent", backend="torch")
    before = weights(moved)
    assert changed(weights(agents), before) == [False]
    trainer(env, args, **few).train(moved, [1], plot=False)
    assert changed(before, weights(moved)) == [True]


@pytest.mark.parametrize("make", [ppo, *LONG * [dqn]])
def test_one_player_on_pytorch_and_another_on_tensorflow_in_the_same_game(make):
    """They are learners of their own, and each comes out as it does beside a player of its own framework."""
    mixed = [make(backend=backend)[i] for i, backend in enumerate(BOTH)]
    start = weights(mixed)
    result = trainer(steps_per_train=36).train(mixed, [1, 1], plot=False)
    assert mixed[0].learner_ is not mixed[1].learner_
    assert changed(start, weights(mixed)) == [True, True]
    pure = make()
    expected = trainer(steps_per_train=36).train(pure, [1, 1], plot=False)
    for mine, theirs in zip(weights(mixed), weights(pure), strict=True):
        for name, array in mine.items():
            np.testing.assert_allclose(array, theirs[name], rtol=1e-4, atol=2e-5, err_msg=name)
    assert result["num_gradient_steps"] == expected["num_gradient_steps"]
    assert not math.isnan(result["history"].filter(like="loss/total").iloc[-1].sum())


def test_a_shared_learner_is_of_one_framework():
    """Agents of equal settings stack only with those of their backend."""
    args = {"players": 4, "length": 3}
    agents = [mt.make_agents("ppo", Identity, env_args=args, seed=0, network=SMALL, minibatches=2,
                             backend=BOTH[i % 2])[i] for i in range(4)]  # fmt: skip
    trainer(Identity, args, steps_per_train=12).train(agents, [1] * 4, plot=False)
    learners: list[Any] = [agent.learner() for agent in agents]
    assert learners[0] is learners[2] is not learners[1]
    assert learners[1] is learners[3]
    assert [learner.backend.name for learner in learners] == ["torch", "tensorflow"] * 2
