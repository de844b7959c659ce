"""CustomAgent: a user's own model, losses and optimizers, in PyTorch and in Keras."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from keras import layers
from torch import nn

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.policies.memory.streams import Storage, Streams
from tests.policies.memory.worlds import Record, World, drive, one_group
from tests.policies.own import with_keras, with_torch
from tests.policies.own.agents import FRAMEWORKS, TICTACTOE, VECTOR, copied, equal, identity_player, trainer
from tests.policies.some_batches import some_rollout, some_transitions
from tests.tiers import LONG
from tests.toys import Identity, Motley


@pytest.mark.parametrize("own", FRAMEWORKS if LONG else [with_torch], indirect=True)
def test_learns_the_identity_game_off_and_on_policy(own):
    agents = [own.q_agent(3, 3, update_per_step=0.2), own.actor_critic_agent(3, 3)]
    result = trainer(Identity, 1600, num_train_envs=8, episodes_per_test=8).train(agents, [1, 1], plot=False)
    returns = result["history"].filter(like="return/").to_numpy()
    assert returns[0].mean() < 6
    assert (returns[-1] > 9.5).all()
    last = result["history"].iloc[-1]
    assert np.isfinite(
        last[["player_0/loss/total", "player_0/grad_norm/total", "player_1/loss/critic"]].astype(float)
    ).all()
    assert last["player_1/loss/total"] == pytest.approx(last["player_1/loss/critic"] + last["player_1/loss/actor"])


@pytest.mark.parametrize("make", ["q_agent", *LONG * ["actor_critic_agent"]])
def test_plays_both_seats_of_tictactoe_legally(own, make):
    agent = getattr(own, make)(18, 9)
    result = trainer(TICTACTOE, 200).train([agent, agent], [1, 1], plot=False)
    assert result["num_gradient_steps"] >= 4


def test_a_mixed_table_trains():
    one = lambda: Identity(players=1)  # noqa: E731
    agents = [
        with_torch.q_agent(3, 3), with_keras.actor_critic_agent(3, 3),
        *mt.make_agents("ppo", one, seed=1, update_freq=64),
        *mt.make_agents("dqn", one, seed=2, learning_starts=20, backend="tensorflow"), mt.RandomAgent(),
    ]  # fmt: skip
    result = trainer(lambda: Identity(players=5), 200).train(agents, [1, 1, 1, 1, 0], plot=False)
    last = result["history"].iloc[-1]
    assert all(np.isfinite(last[f"player_{i}/loss/total"]) for i in range(4))


def test_losses_do_not_leak(own):
    """The critic's phase moves the critic alone, the actor's all but the critic; each as if it had run by itself."""
    agent = own.actor_critic_agent(5, 3)
    start, model = copied(agent.model), own.ActorCritic(5, 3)
    columns = tensors(agent, some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [40]))
    moved = {"critic": [4, 5], "actor": [0, 1, 2, 3]}  # shared, actor, critic: kernel and bias of each
    for only in ("critic", "actor"):
        before = copied(model)
        own.actor_critic_agent(5, 3, model=model, only=only).own.step(columns)
        assert [i for i, same in enumerate(equal(copied(model), before)) if not same] == moved[only]
    agent.own.step(columns)
    for one, two in zip(copied(agent.model), copied(model), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-7)
    assert not any(equal(copied(agent.model), start))


def tensors(agent, batch):
    return {name: agent.own.tensors(value) for name, value in agent._columns(batch).items()}


@pytest.mark.parametrize("limit", [0.05, *LONG * [None]])
@pytest.mark.parametrize("make", ["q_agent", "actor_critic_agent"])
def test_both_frameworks_compute_the_same(make, limit):
    """Equal weights and equal data give equal metrics and equal weights, pass after pass."""
    agents = [getattr(module, make)(5, 3, rule=module.momentum, max_grad_norm=limit) for module in FRAMEWORKS]
    with_keras.fill(agents[1].model, with_torch.arrays(agents[0].model))
    rng = np.random.default_rng(0)
    for _ in range(20):
        batch = (
            some_transitions(rng, VECTOR, 3, 1, 16, masked=True) if make == "q_agent"
            else some_rollout(rng, VECTOR, spaces.Discrete(3), [17], masked=True)
        )  # fmt: skip
        (one, passes), (two, others) = (agent.learn(batch, 16) for agent in agents)
        assert passes == others
        assert one.keys() == two.keys()
        assert all(two[name] == pytest.approx(one[name], rel=1e-5, abs=1e-5) for name in one)
    for one, two in zip(*(copied(agent.model) for agent in agents), strict=True):
        np.testing.assert_allclose(one, two, atol=2e-5)
    observations = rng.uniform(-1, 1, (50, 5)).astype(np.float32)
    for agent in agents:
        agent.observation_space, agent.action_space, agent.layout = VECTOR, spaces.Discrete(3), Layout(VECTOR)
    assert np.array_equal(*(agent.act(observations) for agent in agents))


@pytest.mark.parametrize("masked", [True, *LONG * [False]])
@pytest.mark.parametrize(("own", "rule"), [(own, rule) for own in FRAMEWORKS for rule in own.EXACT], indirect=["own"])
def test_dqn_by_hand_equals_marltrains(own, rule, masked):
    output = mt.DQN(
        VECTOR, spaces.Discrete(3), network=mt.MLP((16,), activation="tanh"), learning_rate=1e-2, max_grad_norm=None,
        target_sync=1, gamma=0.9, seed=3, backend=own.FRAMEWORK, optimizer=rule,
    )  # fmt: skip
    agent = own.q_agent(5, 3)
    own.fill(agent.model.online, list(output.learner_.weights.online["q"].arrays(0).values()))
    own.follow(agent.model)
    agent = mt.CustomAgent(agent.model, own.q_loss, own.EXACT[rule](1e-2, agent.model.online), after_update=own.follow)
    rng = np.random.default_rng(0)
    for _ in range(20):
        batch = some_transitions(rng, VECTOR, 3, 1, 16, masked=masked)
        metrics = output.learner_.update(batch, learn=np.ones(1, bool), batch_size=16)
        result, passes = agent.learn(batch, 16)
        assert passes == 1
        assert result["loss/total"] == pytest.approx(metrics["loss/total"][0], rel=1e-5, abs=1e-6)
    wanted = output.learner_.weights.online["q"].arrays(0).values()
    for mine, theirs in zip(own.arrays(agent.model.online), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=3e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_says_what_followed_each_row(seed):
    """Both kinds of memory, on ragged turn-based games, against a slow record."""
    spec = one_group()
    off = with_torch.q_agent(2, 3, memory=mt.Replay(100), gamma=0.9)
    on = with_torch.actor_critic_agent(2, 3, gamma=0.9)
    streams, record = Streams(spec, 3, {0: Storage(12)}), Record(spec, 3)
    seats = [[0, 2]]
    readers: list[Any] = []
    compared = []

    def on_step(t):
        if not readers:
            readers.extend(agent.learner().reader(streams, seats) for agent in (off, on))
        if t % 19 or not t:
            return
        drawn = readers[0].sample([np.random.default_rng(t)], np.array([0.9]), 40)
        for agent, given in ((off, drawn), (on, readers[1].take(np.array([0.9])))):
            batch = SimpleNamespace(**agent._columns(given))
            for i in range(len(batch.reward)):
                compare(batch, i)

    def compare(batch, i):
        row = next(r for p in (0, 2) for r in record.rows[p] if np.array_equal(r.obs, batch.obs[i]))
        obs, legal, terminated = (
            (row.next.obs, row.next.legal, False) if row.end is None else (*row.end[1:], row.end[0])
        )
        assert np.array_equal(batch.next_obs[i], obs)
        assert np.array_equal(batch.next_legal[i], legal)
        assert np.array_equal(batch.legal[i], row.legal)
        assert (batch.action[i], batch.terminated[i]) == (row.action, terminated)
        assert batch.reward[i] == pytest.approx(row.reward)
        assert batch.discount[i] == pytest.approx(0.0 if terminated else 0.9)
        if batch.cut is not None and not batch.cut[i]:
            assert np.array_equal(batch.obs[i + 1], batch.next_obs[i])
        compared.append(terminated)

    drive(World(spec, 3, seed), streams, record, on_step, 100)
    assert 20 < sum(compared) < len(compared) - 100


def test_n_steps_are_the_memorys():
    agent = with_torch.q_agent(3, 3, memory=mt.Replay(500, n_step=3))
    assert agent.needs() == mt.Needs(on_policy=False, capacity=500, n_step=3, replay=mt.Replay(500, 3))


def test_minibatches_cover_a_rollout_once_an_epoch(own):
    seen: list[np.ndarray] = []

    def made(**settings):
        model = own.linear(5, 3)
        agent: Any = mt.CustomAgent(model, own.squares, own.sgd(0.1, model), memory=mt.Rollouts(), seed=0, **settings)
        step = agent.own.step

        def watched(columns):
            seen.append(np.asarray(columns["reward"]))
            return step(columns)

        agent.own.step = watched
        return agent

    rollout = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [30])
    _, passes = made(epochs=3, minibatches=4).learn(rollout, 64)
    assert passes == 12
    assert sorted({len(rewards) for rewards in seen}) == [7, 8]
    for epoch in range(3):
        rewards = np.concatenate(seen[4 * epoch : 4 * epoch + 4])
        assert np.array_equal(np.sort(rewards), np.sort(rollout.reward[0]))
    seen.clear()
    made().learn(rollout, 30)
    assert len(seen) == 1
    assert np.array_equal(seen[0], rollout.reward[0])


def test_acts_by_scores_legally_and_explores_where_told(own):
    model = own.linear(3, 3, [[3, 2, 1], [0, 0, 0], [0, 0, 0]])
    agent = mt.CustomAgent(model, own.squares, own.sgd(0.1, model), epsilon=1.0, seed=0)
    agent.sit(identity_player(), 0)
    symbols = np.zeros(300, np.int64)
    legal = np.tile([False, True, True], (300, 1))
    assert set(agent.act(symbols)) == {0}
    assert set(agent.act(symbols, legal)) == {1}
    mixed = agent.act(symbols, legal, explore=np.arange(300) % 2 == 0)
    assert set(mixed[1::2]) == {1}
    assert set(mixed[::2]) == {1, 2}


def test_acts_in_a_box_with_noise_and_clips(own):
    space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    model = own.linear(5, 2, np.zeros((5, 2)))
    agent = mt.CustomAgent(
        model, own.squares, own.sgd(0.1, model), observation_space=VECTOR, action_space=space, noise=0.1, seed=0
    )
    rows = np.zeros((2000, 5), np.float32)
    assert np.array_equal(agent.act(rows), np.zeros((2000, 2)))
    noisy = agent.act(rows, explore=True)
    assert noisy[:, 0].std() == pytest.approx(0.2, rel=0.1)
    assert noisy[:, 1].min() == 0
    assert noisy[:, 1].max() == pytest.approx(0.5 * 3.5, rel=0.3)


def test_clipped_actions_stay_in_a_box_of_float64(own):
    """float32(0.1) > 0.1"""
    space = spaces.Box(-0.3, 0.1, (1,), np.float64)
    model = own.linear(5, 1, np.full((5, 1), 9.0))
    agent = mt.CustomAgent(
        model, own.squares, own.sgd(0.1, model), observation_space=VECTOR, action_space=space, seed=0
    )
    for row in (np.ones(5, np.float32), -np.ones(5, np.float32)):
        assert agent.act(row) in space


class TorchWheels(nn.Module):
    """Scores of three wheels from a picture beside a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20 + 10, 2 + 3 + 4)

    def forward(self, obs):
        return self.layer(torch.cat([obs["screen"].flatten(1) / 255, obs["vector"]], 1)).split([2, 3, 4], 1)


def test_any_spaces_with_an_acting_of_ones_own_in_torch():
    def loss(model, batch):
        scores = [wheel.gather(1, batch.action[:, i : i + 1])[:, 0] for i, wheel in enumerate(model(batch.obs))]
        return sum((score - batch.reward).pow(2).mean() for score in scores)

    def act(model, obs, legal, explore, rng):
        best = torch.stack([wheel.argmax(1) for wheel in model(obs)], 1).numpy()
        random = explore.numpy()[:, None] & (rng.random(best.shape) < 0.5)
        return np.where(random, rng.integers(2, size=best.shape), best)

    wheels, lever = TorchWheels(), nn.Linear(4, 2)
    agents = [
        mt.CustomAgent(wheels, loss, torch.optim.Adam(wheels.parameters()), act_fn=act, update_per_step=0.2),
        mt.CustomAgent(lever, lambda model, batch: -model(batch.obs).mean(), torch.optim.Adam(lever.parameters(), 0.1)),
    ]
    result = trainer(Motley, 200).train(agents, [1, 1], plot=False)
    assert result["history"]["return/steered"].iloc[-1] > 15


def test_any_spaces_with_an_acting_of_ones_own_in_keras():
    seen = {name: keras.Input(shape, name=name) for name, shape in (("screen", (4, 5)), ("vector", (10,)))}
    screen = layers.Flatten()(layers.Rescaling(1 / 255)(seen["screen"]))
    features = layers.Concatenate()([screen, seen["vector"]])
    wheels = keras.Model(seen, [layers.Dense(width)(features) for width in (2, 3, 4)])
    lever = keras.Sequential([keras.Input((4,)), layers.Dense(2)])

    def loss(model, batch):
        pairs = zip(model(batch.obs), tf.unstack(batch.action, axis=1), strict=True)
        return sum(tf.reduce_mean((tf.gather(q, a, batch_dims=1) - batch.reward) ** 2) for q, a in pairs)

    def act(model, obs, legal, explore, rng):
        best = np.stack([np.argmax(wheel, 1) for wheel in model(obs)], 1)
        random = explore.numpy()[:, None] & (rng.random(best.shape) < 0.5)
        return np.where(random, rng.integers(2, size=best.shape), best)

    agents = [
        mt.CustomAgent(wheels, loss, keras.optimizers.Adam(), act_fn=act, update_per_step=0.2),
        mt.CustomAgent(lever, lambda model, batch: -tf.reduce_mean(model(batch.obs)), keras.optimizers.Adam(0.1)),
    ]
    result = trainer(Motley, 200).train(agents, [1, 1], plot=False)
    assert result["history"]["return/steered"].iloc[-1] > 15


def test_numbers_are_set_and_follow_schedules():
    agent = with_torch.q_agent(3, 3, epsilon=mt.linear(1.0, 0.0, 100))
    agent.learner().apply_schedules(25)
    assert agent.hyper.epsilon == 0.75
    agent.hyper.epsilon = 0.3
    agent.learner().apply_schedules(50)
    assert agent.hyper.epsilon == 0.3
    agent.hyper.gamma = 0.5
    assert agent.learner().gammas() == [0.5]
    with pytest.raises(mt.ConfigError, match="epsilon must be at most 1"):
        agent.hyper.epsilon = 1.5
    with pytest.raises(mt.ConfigError, match="'batch_size' is structural"):
        agent.hyper.batch_size = 3
    with pytest.raises(mt.ConfigError, match="Did you mean 'gamma'"):
        agent.hyper.gama = 0.9


def test_two_runs_with_one_seed_are_identical(own):
    def run():
        agents = [own.q_agent(3, 3, dropout=0.3), own.actor_critic_agent(3, 3)]
        own.draw()  # what is drawn elsewhere must not matter
        trainer(Identity, 120).train(agents, [1, 1], plot=False)
        return [array for agent in agents for array in copied(agent.model)]

    first = run()
    assert all(equal(first, run()))
    plain = own.q_agent(3, 3)
    trainer(Identity, 120).train([plain, mt.RandomAgent()], [1, 0], plot=False)
    assert not any(equal(first[:4], copied(plain.model)[:4])), "dropout changed nothing"


def test_a_seat_that_does_not_learn_is_unchanged_and_a_frozen_copy_stays(own):
    learning, still = own.q_agent(3, 3), own.q_agent(3, 3, seed=1)
    learning.sit(identity_player(), 0)
    frozen: Any = mt.FrozenAgent(learning)
    symbols = np.arange(3)
    before, chosen = (copied(learning.model), copied(still.model)), frozen.act(symbols)
    learning.hyper.gamma = 0.5
    trainer(lambda: Identity(players=3), 160).train([learning, still, frozen], [1, 0, 0], plot=False)
    assert all(equal(before[1], copied(still.model)))
    assert not any(equal(before[0], copied(learning.model)))
    assert np.array_equal(frozen.act(symbols), chosen)
    assert not np.array_equal(learning.act(symbols), chosen)
    assert frozen.inner.hyper.gamma == 0.9
    saved = [array for name, array in frozen.state().arrays.items() if name.startswith("weights/")]
    assert sorted(array.sum() for array in saved if array.size) == pytest.approx(sorted(a.sum() for a in before[0]))


def test_saves_and_loads(own, tmp_path):
    agents = [own.q_agent(3, 3, epsilon=mt.linear(1.0, 0.0, 1000)), own.actor_critic_agent(3, 3)]
    trainer(Identity, 120).train(agents, [1, 1], plot=False)
    mt.save(tmp_path / "agents", agents)
    makers = {"Twins": lambda: own.q_agent(3, 3, seed=5), "ActorCritic": lambda: own.actor_critic_agent(3, 3, seed=6)}
    loaded: list[Any] = mt.load(tmp_path / "agents", custom_objects=makers)
    for agent, again in zip(agents, loaded, strict=True):
        one, two = agent.state(), again.state()
        assert one.info == two.info
        assert one.arrays.keys() == two.arrays.keys()
        assert all(np.array_equal(one.arrays[k], two.arrays[k]) for k in one.arrays)
    assert np.array_equal(loaded[0].act(np.arange(3)), agents[0].act(np.arange(3)))
    batch = some_transitions(np.random.default_rng(0), spaces.Box(-1, 1, (3,)), 3, 1, 16)
    agents[0].learn(batch, 16), loaded[0].learn(batch, 16)  # with the same moments
    assert all(equal(copied(agents[0].model), copied(loaded[0].model)))
    wrong: Any = (({}, "nothing"), ({"Twins": agents[0]}, "CustomAgent"), ({"Twins": own.Twins(3, 3)}, "Twins"))
    for custom_objects, came in wrong:
        with pytest.raises(mt.SaveError, match=f"a model of your own, 'Twins'.*got {came}"):
            mt.load(tmp_path / "agents", custom_objects=custom_objects)
    with pytest.raises(mt.SaveError, match="does not fit the one supplied"):
        mt.load(tmp_path / "agents", custom_objects={**makers, "Twins": lambda: own.q_agent(4, 3)})
    other = with_keras if own is with_torch else with_torch
    text = f"is a model of {own.FRAMEWORK}, the one supplied is one of {other.FRAMEWORK}"
    with pytest.raises(mt.SaveError, match=text):
        mt.load(tmp_path / "agents", custom_objects={**makers, "Twins": lambda: other.q_agent(3, 3)})


def test_another_backend_is_refused_for_a_model_of_ones_own(own, tmp_path):
    mt.save(tmp_path / "agents", own.q_agent(3, 3))
    other = "tensorflow" if own is with_torch else "torch"
    text = rf"backend='{other}': Twins is code of your own for '{own.FRAMEWORK}', which computes with no other"
    with pytest.raises(mt.AgentError, match=text):
        mt.load(tmp_path / "agents", custom_objects={"Twins": lambda: own.q_agent(3, 3)}, backend=other)
    (same,) = mt.load(tmp_path / "agents", custom_objects={"Twins": lambda: own.q_agent(3, 3)}, backend=own.FRAMEWORK)
    assert isinstance(same, mt.CustomAgent)
