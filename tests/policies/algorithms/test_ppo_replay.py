"""PPO with a replay memory: corrected advantages, truncated ratios and priorities, in both frameworks and compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.learner.test_gradient_step_priorities import WAYS, constants
from tests.policies.some_batches import VECTOR, of_agent, some_rollout
from tests.tiers import LONG

TWO, THREE = spaces.Discrete(2), spaces.Discrete(3)
BOX = spaces.Box(-2, 2, (2,), np.float32)
MEMORY = mt.Replay(1_000, prioritized=mt.Prioritized())


def replayed(batch: Any, weights: Any = None) -> Any:
    """The batch, every third row of which is replayed with a weight below 1."""
    fresh = (np.arange(batch.weight.shape[1]) % 3 > 0) & (batch.weight > 0)
    weight = batch.weight * np.where(fresh, 1.0, 0.4)
    weight = (weight if weights is None else np.array(weights)).astype(np.float32)
    return replace(batch, weight=weight, fresh=fresh, rows=np.zeros(fresh.shape, np.int64))


@pytest.mark.parametrize(("backend", "jit_compile"), WAYS)
def test_an_update_by_hand(backend, jit_compile):
    """The policy gives both actions 1/2, the critic 1; those that acted gave 1/4, 4/5 and 1/10: ratios 2, 5/8 and 5.

    delta: 1 + 0.5 - 1, 2 + 0.5 - 1 and -3 - 1. Traces 1, 5/8 and 1, with a lambda of 1/2:
    A_2 = -4, A_1 = 1.5 + 0.25 * -4 = 0.5, A_0 = 0.5 + 0.25 * 5/8 * 0.5 = 0.578125. Targets 1 + c A.
    Ratios are truncated to 2: the smaller of ratio * A and clipped ratio * A is 1.2 A_0, 5/8 A_1 and 2 A_2.
    Priorities: 1/4 |delta| + 3/4 |ratio - 1| with the ratios that are not truncated.
    """
    agent: Any = mt.PPO(
        VECTOR, TWO, seed=0, backend=backend, jit_compile=jit_compile, memory=MEMORY, learning_rate=0.0, epochs=1,
        minibatches=1, gae_lambda=0.5, normalize_advantage=False, priority_lambda=0.25, network=mt.MLP((4,)),
    )  # fmt: skip
    constants(agent, {"actor": [0.0, 0.0], "critic": 1.0})
    batch = some_rollout(np.random.default_rng(0), VECTOR, TWO, [3])
    given = {"reward": [1, 2, -3], "discount": [0.5, 0.5, 0], "cut": [0, 0, 1], "boot": [-1, -1, 0]}
    for name, values in given.items():
        setattr(batch, name, np.array([values]).astype(getattr(batch, name).dtype))
    batch.extras["log_prob"] = np.log(np.array([[0.25, 0.8, 0.1]], np.float32))
    batch = replayed(batch, [[1.0, 0.5, 0.25]])
    measured = agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=3)
    weight = np.array([1.0, 0.5, 0.25]) / 1.75
    advantage, trace = np.array([0.578125, 0.5, -4.0]), np.array([1.0, 0.625, 1.0])
    actor = -(weight * [1.2 * 0.578125, 0.625 * 0.5, -8.0]).sum()
    assert measured["loss/actor"][0] == pytest.approx(actor, rel=1e-4)
    assert measured["loss/critic"][0] == pytest.approx(0.5 * (weight * (trace * advantage) ** 2).sum(), rel=1e-4)
    assert measured["approx_kl"][0] == pytest.approx(
        (weight * [x - 1 - np.log(x) for x in (2, 0.625, 2)]).sum(), rel=1e-4
    )
    expected = 0.25 * np.array([0.5, 1.5, 4.0]) + 0.75 * np.array([1.0, 0.375, 4.0])
    np.testing.assert_allclose(batch.errors, [expected], rtol=1e-4)
    assert measured["reward_mean"][0] == pytest.approx((0.5 * 2 - 0.25 * 3) / 0.75)  # of rows 1 and 2, which are new


def learner(agents: int, space: Any, backend: str, jit_compile: bool = False, **settings: Any) -> Any:
    own: dict[str, Any] = {"network": mt.MLP((6,)), "epochs": 2, "minibatches": 2, "memory": MEMORY, **settings}
    agent: Any = mt.PPO(VECTOR, space, seed=0, backend=backend, device="cpu", **own)
    result = make_backend(backend, "cpu", jit_compile=jit_compile)
    return AlgorithmLearner(agent.algorithm, result, list(range(agents)), draw=True)


KINDS = [(THREE, True, {}), (BOX, False, {"normalize_returns": True, "normalize_values": "popart"}),
         *([(THREE, False, {"shared_trunk": True, "kl_penalty": 0.1})] if LONG else [])]  # fmt: skip


@pytest.mark.parametrize(("space", "masked", "settings"), KINDS)
def test_frameworks_compiled_code_and_single_agents_agree(space, masked, settings):
    """Four updates of three agents; one pauses. Errors and weights are those of each agent alone."""
    ways = [("torch", False), ("torch", True), ("tensorflow", False)]
    together = [learner(3, space, *way, **settings) for way in ways]
    alone = [learner(1, space, "torch", **settings) for _ in range(3)]
    for k, one in enumerate(alone):
        one.load(0, together[0].export(k))
    for other in together[1:]:
        for k in range(3):
            other.load(k, together[0].export(k))
    rng, compared = np.random.default_rng(0), 0
    for learns in ([1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1]):
        batch = replayed(some_rollout(rng, VECTOR, space, [13, 7, 10], masked=masked))
        batches = [replace(batch) for _ in ways]
        for own, each in zip(together, batches, strict=True):
            own.update(each, learn=np.array(learns, bool), batch_size=8)
        for k, one in enumerate(alone):
            mine = of_agent(batch, k)
            one.update(mine, learn=np.array([learns[k]], bool), batch_size=8)
            rows = mine.weight.shape[1]
            np.testing.assert_allclose(batches[0].errors[k, :rows], mine.errors[0], rtol=2e-3, atol=2e-4)
            compared += rows
        for each in batches[1:]:
            np.testing.assert_allclose(each.errors, batches[0].errors, rtol=2e-3, atol=2e-4)
        assert (batches[0].errors[batch.weight > 0] > 0).all() and not batches[0].errors[batch.weight == 0].any()
    assert compared >= 4 * 30
    for k in range(3):
        first = together[0].export(k).arrays
        for other in (*together[1:], alone[k]):
            arrays = other.export(0 if other is alone[k] else k).arrays
            for name, array in first.items():
                np.testing.assert_allclose(arrays[name], array, rtol=1e-3, atol=2e-4, err_msg=name)


def test_a_rollout_of_the_present_policy_is_learned_from_as_without_a_memory():
    """Ratios of 1 and no replayed rows: the same weights up to rounding."""
    (plain, own), rng = (
        (learner(2, THREE, "torch", memory=memory) for memory in (None, MEMORY)),
        np.random.default_rng(1),
    )
    batch = some_rollout(rng, VECTOR, THREE, [9, 12])
    for one in (plain, own):
        out = one.backend.numpy(one.weights.nets["actor"](one.backend.tensor(batch.obs))[0])
        out = out - np.log(np.exp(out).sum(-1, keepdims=True))
        batch.extras["log_prob"] = np.take_along_axis(out, batch.action[..., None], -1)[..., 0]
        one.update(batch, learn=np.ones(2, bool), batch_size=8)
    for k in range(2):
        ours, theirs = own.export(k).arrays, plain.export(k).arrays
        assert all(np.allclose(ours[name], theirs[name], atol=2e-5) for name in theirs)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_effective_sample_size_is_that_of_ratios_that_are_not_truncated(backend):
    """Weights w * ratio of 1 * 2, 1/2 * 5/8 and 1/4 * 5, with the ratios of `test_an_update_by_hand`."""
    agent: Any = mt.PPO(VECTOR, TWO, seed=0, backend=backend, memory=MEMORY, learning_rate=0.0, network=mt.MLP((4,)))
    constants(agent, {"actor": [0.0, 0.0]})
    batch = some_rollout(np.random.default_rng(0), VECTOR, TWO, [3])
    batch.extras["log_prob"] = np.log(np.array([[0.25, 0.8, 0.1]], np.float32))
    agent.learner_.measured.ask("effective_sample_size")
    measured = agent.learner_.update(replayed(batch, [[1.0, 0.5, 0.25]]), learn=np.ones(1, bool), batch_size=3)
    w = np.array([2.0, 0.5 * 0.625, 1.25])
    assert measured["effective_sample_size"][0] == pytest.approx(w.sum() ** 2 / (3 * (w**2).sum()), rel=1e-4)


def test_wrong_settings():
    def made(**settings: Any) -> Any:
        return mt.PPO(VECTOR, THREE, **settings)

    with pytest.raises(ConfigError, match=r"priority_lambda=0.25 has no effect without a replay memory"):
        made(priority_lambda=0.25)
    assert made(replay_truncation=4.0).settings.replay_truncation == 4.0  # for rollouts that lag
    with pytest.raises(ConfigError, match="lag_correction=False has no effect with a replay memory"):
        made(memory=MEMORY, lag_correction=False)
    with pytest.raises(ConfigError, match=r"lag_kl=0\.2 has no effect with a replay memory"):
        made(memory=MEMORY, lag_kl=0.2)
    with pytest.raises(ConfigError, match=r"lag_kl=0\.2 has no effect with lag_correction=False: leave it out"):
        made(lag_kl=0.2, lag_correction=False)
    with pytest.raises(ConfigError, match="seac: lag_correction=False has no effect on an algorithm that does not"):
        mt.SEAC(VECTOR, THREE, lag_correction=False)
    with pytest.raises(ConfigError, match="draws by priorities: add prioritized="):
        made(memory=mt.Replay(100))
    with pytest.raises(ConfigError, match=r"Replay\(n_step\) has no effect on the replay of rollouts"):
        made(memory=replace(MEMORY, n_step=3))
    with pytest.raises(ConfigError, match=r"Prioritized\(initial\) has no effect"):
        made(memory=mt.Replay(prioritized=mt.Prioritized(initial=2.0)))
    with pytest.raises(ConfigError, match=r"target_kl=0\.01 ends updates by the divergence"):
        made(memory=MEMORY, target_kl=0.01)
    with pytest.raises(ConfigError, match="replay_truncation must be at least 1"):
        made(memory=MEMORY, replay_truncation=0.5)
    with pytest.raises(ConfigError, match="priority_lambda must be at most 1"):
        made(memory=MEMORY, priority_lambda=2.0)
    for kind in (mt.A2C, mt.ACER, mt.TRPO, mt.GAIL, mt.MAA2C):
        with pytest.raises(ConfigError, match=rf"{kind.__name__} learns on-policy.*no replay memory"):
            kind(VECTOR, THREE, memory=MEMORY)  # type: ignore[call-arg]


class Changed(PPOAlgorithm):
    """PPO without the errors of rows, or with other needs."""

    lacks: ClassVar[str] = "row_errors"

    def __init__(self, settings: Any, layout: Any, action_space: Any) -> None:
        super().__init__(settings, layout, action_space)
        if self.lacks == "row_errors":
            self.row_errors = None

    def needs(self) -> Any:
        own, lacking = super().needs(), {self.lacks: 0}
        return own if self.lacks == "row_errors" else replace(own, **lacking)  # type: ignore[arg-type]


class ChangedAgent(mt.PPO):
    """An agent of it."""

    algorithm_class = Changed


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ("row_errors", "row_errors is None: define it"),
        ("replay_share", r"replay_share=0: give Needs\(replay_share="),
        ("sequence", r"sequence=0: give Needs\(sequence="),
    ],
)
def test_algorithms_that_would_replay_nothing(lacks, words, monkeypatch):
    monkeypatch.setattr(Changed, "lacks", lacks)
    with pytest.raises(ConfigError, match=rf"ppo: Needs\(replay=...\) of an on-policy .* {words}"):
        ChangedAgent(VECTOR, THREE, memory=MEMORY)
    if lacks == "row_errors":
        ChangedAgent(VECTOR, THREE)


def trained(update: Any = None, **memory: Any) -> None:
    """Train PPO for 6 rollouts of 16 batch steps of 4 environments."""
    replay = mt.Replay(**{"capacity": 256, "prioritized": mt.Prioritized(), **memory})
    env = "marltrain/CartPole-v1"
    agents = mt.make_agents("ppo", env, seed=0, memory=replay, network=mt.MLP((4,)), epochs=1, minibatches=1)
    if update is not None:
        update(agents[0])
    settings: dict[str, Any] = {"update_freq": 64, "steps_per_train": 384, "test_freq": None, "run_dir": False}
    mt.DecentralizedTrainer(env, num_train_envs=4, seed=0, progress=False, **settings).train(agents, [1], plot=False)


@pytest.mark.parametrize(
    ("memory", "value"),
    [
        ({"capacity": 64}, "capacity=64"),
        ({"window": 64}, "window=64"),
        ({"window": 0.25}, "window=0.25"),
        ({"clear_every": 61}, "clear_every=61"),
        ({"clear_every": 128}, "clear_every=128"),
    ],
)
def test_memories_without_rows_to_replay(memory, value):
    with pytest.raises(ConfigError, match=rf"{value}\) .* no row that is earlier than a rollout of 64 env steps"):
        trained(**memory)


@pytest.mark.parametrize(
    "memory",
    [{"capacity": 65}, {"window": 65}, {"window": mt.linear(1, 200, 10)}, {"clear_every": 97}, {"clear_every": 192}],
)
def test_memories_with_rows_to_replay(memory, monkeypatch):
    """The smallest ones, and a window that grows; of 25 and 48 batch steps up to 24 and 32 are left at an update."""
    replayed, update = [], AlgorithmLearner.update

    def counted(self: Any, batch: Any, **given: Any) -> Any:
        replayed.append(int((batch.weight > 0).sum() - batch.fresh.sum()))
        return update(self, batch, **given)

    monkeypatch.setattr(AlgorithmLearner, "update", counted)
    trained(**memory)
    assert len(replayed) == 6 and sum(replayed) > 0


def test_windows_that_were_set_later_are_checked():
    with pytest.raises(ConfigError, match=r"window=30\) .* no row"):
        trained(lambda agent: setattr(agent.memory, "window", 30), window=128)
    trained(lambda agent: setattr(agent.memory, "window", 128), window=30)


def test_numbers_and_saving(tmp_path):
    agent: Any = mt.PPO(VECTOR, THREE, seed=0, memory=MEMORY, priority_lambda=0.25)
    agent.hyper.priority_lambda, agent.memory.alpha = 0.75, 0.3
    mt.save(tmp_path / "saved", [agent])
    loaded: Any = mt.load(tmp_path / "saved")[0]
    assert (loaded.hyper.priority_lambda, loaded.memory.alpha, loaded.memory.capacity) == (0.75, 0.3, 1_000)
    assert loaded.settings.memory == MEMORY
    assert agent.kind != mt.PPO(VECTOR, THREE, seed=0).kind
