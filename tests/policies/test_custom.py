"""CustomAgent: a user's own model, losses and optimizers."""

import copy
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.layout import Layout
from marltrain.policies.custom import LossBatch
from marltrain.policies.memory.streams import Plan, Streams
from marltrain.spec import PlayerSpec
from tests.policies.batches import some_rollout, some_transitions
from tests.policies.memory.worlds import Record, World, drive, one_group
from tests.toys import Identity, Motley

TICTACTOE = "pettingzoo/classic/tictactoe_v3"
VECTOR = spaces.Box(-1, 1, (5,), np.float32)


class Twins(nn.Module):
    """A Q-network and its target."""

    def __init__(self, inputs: int, actions: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.online = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, actions))
        self.target = copy.deepcopy(self.online)

    def forward(self, obs):
        return self.online(obs)


def q_loss(model, batch):
    """Double Q-learning with the Huber loss, as marltrain's DQN has it."""
    with torch.no_grad():
        judge = model.online(batch.next_obs)
        if batch.next_legal is not None:
            judge = judge.masked_fill(~batch.next_legal, -1e9)
        best = judge.argmax(1, keepdim=True)
        target = batch.reward + batch.discount * model.target(batch.next_obs).gather(1, best)[:, 0]
    q = model.online(batch.obs).gather(1, batch.action[:, None])[:, 0]
    return (nn.functional.smooth_l1_loss(q, target, reduction="none") * batch.weight).sum() / batch.weight.sum()


def follow(model):
    model.target.load_state_dict(model.online.state_dict())


def q_agent(inputs, actions, seed=0, rate=1e-2, **settings):
    model = Twins(inputs, actions, seed)
    optimizer = torch.optim.Adam(model.online.parameters(), lr=rate)
    kept = {"batch_size": 32, "update_per_step": 0.5, "epsilon": 0.2, "gamma": 0.9, **settings}
    return mt.CustomAgent(model, q_loss, optimizer, after_update=follow, **kept)


class ActorCritic(nn.Module):
    def __init__(self, inputs: int, actions: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shared = nn.Linear(inputs, 8)
        self.actor, self.critic = nn.Linear(8, actions), nn.Linear(8, 1)

    def policy(self, obs, legal):
        logits = self.actor(torch.tanh(self.shared(obs)))
        return torch.distributions.Categorical(logits=logits if legal is None else logits.masked_fill(~legal, -1e9))

    def value(self, obs):
        return self.critic(torch.tanh(self.shared(obs)))[:, 0]


def critic_loss(model, batch):
    with torch.no_grad():
        target = batch.reward + batch.discount * model.value(batch.next_obs)
    return (model.value(batch.obs) - target).pow(2).mean()


def actor_loss(model, batch):
    advantage = batch.reward + batch.discount * model.value(batch.next_obs) - model.value(batch.obs)
    return -(model.policy(batch.obs, batch.legal).log_prob(batch.action) * advantage).mean()  # advantage not detached


def sample(model, obs, legal, explore, rng):
    policy = model.policy(obs, legal)
    return torch.where(explore, policy.sample(), policy.mode)


def actor_critic_agent(inputs, actions, seed=0, **settings):
    model = ActorCritic(inputs, actions, seed)
    actor = torch.optim.Adam([*model.actor.parameters(), *model.shared.parameters()], lr=2e-2)
    critic = torch.optim.Adam(model.critic.parameters(), lr=2e-2)
    kept = {"gamma": 0.5, "update_freq": 40, "minibatches": 1, **settings}
    return mt.CustomAgent(
        model, [critic_loss, actor_loss], [critic, actor], act_fn=sample, memory=mt.Rollouts(), **kept
    )


def trainer(env, steps, **settings):
    kept = {"num_train_envs": 4, "num_test_envs": 4, "test_freq": 10_000, "episodes_per_test": 20, "seed": 0}
    return mt.DecentralizedTrainer(env, steps_per_train=steps, progress=False, **{**kept, **settings})


def identity_player():
    space = spaces.Discrete(3)
    return PlayerSpec("p", space, space, Layout(space))


def test_learns_the_identity_game_off_and_on_policy():
    agents = [q_agent(3, 3), actor_critic_agent(3, 3)]
    result = trainer(Identity, 1600).train(agents, [1, 1], plot=False)
    returns = result["history"].filter(like="return/").to_numpy()
    assert returns[0].mean() < 6
    assert (returns[-1] > 9.5).all()
    last = result["history"].iloc[-1]
    assert np.isfinite(
        last[["player_0/loss/total", "player_0/grad_norm/total", "player_1/loss/critic"]].astype(float)
    ).all()
    assert last["player_1/loss/total"] == pytest.approx(last["player_1/loss/critic"] + last["player_1/loss/actor"])


@pytest.mark.parametrize("make", [q_agent, actor_critic_agent])
def test_plays_both_seats_of_tictactoe_legally(make):
    agent = make(18, 9)
    result = trainer(TICTACTOE, 400).train([agent, agent], [1, 1], plot=False)
    assert result["num_gradient_steps"] >= 8


def test_a_mixed_table_trains():
    one = lambda: Identity(players=1)  # noqa: E731
    agents = [
        q_agent(3, 3), actor_critic_agent(3, 3), *mt.make_agents("ppo", one, seed=1, update_freq=64),
        *mt.make_agents("dqn", one, seed=2, learning_starts=20), mt.RandomAgent(),
    ]  # fmt: skip
    result = trainer(lambda: Identity(players=5), 200).train(agents, [1, 1, 1, 1, 0], plot=False)
    last = result["history"].iloc[-1]
    assert all(np.isfinite(last[f"player_{i}/loss/total"]) for i in range(4))


def test_losses_do_not_leak():
    """The critic's phase moves the critic alone, the actor's all but the critic; each as if it had run by itself."""
    agent, alone = actor_critic_agent(5, 3), actor_critic_agent(5, 3)
    batch = agent._loss_batch(some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [40]))
    start = copy.deepcopy(agent.model.state_dict())
    critic, actor = alone._phases
    for phase in (critic, actor):
        before = copy.deepcopy(alone.model.state_dict())
        loss = phase.loss(alone.model, batch)
        phase.optimizer.zero_grad()
        loss.backward()
        for optimizer in (critic.optimizer, actor.optimizer):
            if optimizer is not phase.optimizer:
                optimizer.zero_grad()
        phase.optimizer.step()
        changed = {k.split(".")[0] for k, v in alone.model.state_dict().items() if not torch.equal(v, before[k])}
        assert changed == ({"critic"} if phase is critic else {"actor", "shared"})
    agent._pass(batch)
    now = agent.model.state_dict()
    assert all(torch.allclose(now[k], v, atol=1e-7) for k, v in alone.model.state_dict().items())
    assert not any(torch.equal(now[k], start[k]) for k in now)
    assert all(parameter.grad is None for parameter in agent.model.parameters())


@pytest.mark.parametrize("masked", [False, True])
def test_dqn_by_hand_equals_marltrains(masked):
    made = mt.DQN(
        VECTOR, spaces.Discrete(3), network=mt.MLP((16,), activation="tanh"), learning_rate=1e-2, max_grad_norm=None,
        target_sync=1, gamma=0.9, seed=3,
    )  # fmt: skip
    agent = q_agent(5, 3)
    agent.model.online.load_state_dict(_copied(made, agent.model.online))
    follow(agent.model)
    rng = np.random.default_rng(0)
    for _ in range(20):
        batch = some_transitions(rng, VECTOR, 3, 1, 16, masked=masked)
        metrics = made.learner_.update(batch, learn=np.ones(1, bool), batch_size=16)
        own, passes = agent.learn(batch, 16)
        assert passes == 1
        assert own["loss/total"] == pytest.approx(metrics["loss/total"][0], rel=1e-5, abs=1e-6)
    wanted = _copied(made, agent.model.online)
    for name, value in agent.model.online.state_dict().items():
        np.testing.assert_allclose(value.numpy(), wanted[name].numpy(), atol=3e-6)


def _copied(made, like):
    """marltrain's weights under torch's names: in the same order, matrices the other way round."""
    arrays = made.learner_.online["q"].arrays(0).values()
    return {name: torch.from_numpy(array.T.copy()) for name, array in zip(like.state_dict(), arrays, strict=True)}


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_says_what_followed_each_row(seed):
    """Both kinds of memory, on ragged turn-based games, against a slow record."""
    spec = one_group()
    off, on = q_agent(2, 3, memory=mt.Replay(100), gamma=0.9), actor_critic_agent(2, 3, gamma=0.9)
    streams, record = Streams(spec, 3, {0: Plan(12)}), Record(spec, 3)
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
            batch = agent._loss_batch(given)
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
    assert q_agent(3, 3, memory=mt.Replay(500, n_step=3)).needs() == mt.Needs(on_policy=False, capacity=500, n_step=3)


def test_minibatches_cover_a_rollout_once_an_epoch():
    seen: list[LossBatch] = []

    def loss(model, batch):
        seen.append(batch)
        return model(batch.obs).pow(2).mean()

    model = nn.Linear(5, 3)
    agent = mt.CustomAgent(
        model, loss, torch.optim.SGD(model.parameters(), 0.1), memory=mt.Rollouts(), epochs=3, minibatches=4, seed=0
    )
    rollout = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [30])
    _, passes = agent.learn(rollout, 64)
    assert passes == 12
    assert sorted({len(batch.reward) for batch in seen}) == [7, 8]
    for epoch in range(3):
        rewards = torch.cat([batch.reward for batch in seen[4 * epoch : 4 * epoch + 4]])
        assert torch.equal(rewards.sort()[0], torch.from_numpy(rollout.reward[0]).sort()[0])
    seen.clear()
    mt.CustomAgent(model, loss, torch.optim.SGD(model.parameters(), 0.1), memory=mt.Rollouts(), seed=0).learn(
        rollout, 30
    )
    assert len(seen) == 1
    assert torch.equal(seen[0].reward, torch.from_numpy(rollout.reward[0]))


def test_acts_by_scores_legally_and_explores_where_told():
    model = nn.Linear(3, 3, bias=False)
    model.weight.data[:] = torch.tensor([[3.0, 0, 0], [2, 0, 0], [1, 0, 0]])
    agent = mt.CustomAgent(model, q_loss, torch.optim.SGD(model.parameters(), 0.1), epsilon=1.0, seed=0)
    agent.sit(identity_player(), 0)
    symbols = np.zeros(300, np.int64)
    legal = np.tile([False, True, True], (300, 1))
    assert set(agent.act(symbols)) == {0}
    assert set(agent.act(symbols, legal)) == {1}
    mixed = agent.act(symbols, legal, explore=np.arange(300) % 2 == 0)
    assert set(mixed[1::2]) == {1}
    assert set(mixed[::2]) == {1, 2}


def test_acts_in_a_box_with_noise_and_clips():
    space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    model = nn.Linear(5, 2, bias=False)
    model.weight.data.zero_()
    agent = mt.CustomAgent(
        model, q_loss, torch.optim.SGD(model.parameters(), 0.1), observation_space=VECTOR, action_space=space,
        noise=0.1, seed=0,
    )  # fmt: skip
    rows = np.zeros((2000, 5), np.float32)
    assert np.array_equal(agent.act(rows), np.zeros((2000, 2)))
    noisy = agent.act(rows, explore=True)
    assert noisy[:, 0].std() == pytest.approx(0.2, rel=0.1)
    assert noisy[:, 1].min() == 0
    assert noisy[:, 1].max() == pytest.approx(0.5 * 3.5, rel=0.3)


class Mixed(nn.Module):
    """Scores of three wheels from a picture beside a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20 + 10, 2 + 3 + 4)

    def forward(self, obs):
        return self.layer(torch.cat([obs["screen"].flatten(1) / 255, obs["vector"]], 1)).split([2, 3, 4], 1)


def test_any_spaces_with_an_acting_of_ones_own():
    def loss(model, batch):
        scores = [wheel.gather(1, batch.action[:, i : i + 1])[:, 0] for i, wheel in enumerate(model(batch.obs))]
        return sum((score - batch.reward).pow(2).mean() for score in scores)

    def act(model, obs, legal, explore, rng):
        best = torch.stack([wheel.argmax(1) for wheel in model(obs)], 1).numpy()
        random = explore.numpy()[:, None] & (rng.random(best.shape) < 0.5)
        return np.where(random, rng.integers(2, size=best.shape), best)

    wheels, lever = Mixed(), nn.Linear(4, 2)
    agents = [
        mt.CustomAgent(wheels, loss, torch.optim.Adam(wheels.parameters()), act_fn=act, update_per_step=0.2),
        mt.CustomAgent(lever, lambda model, batch: -model(batch.obs).mean(), torch.optim.Adam(lever.parameters(), 0.1)),
    ]
    result = trainer(Motley, 200).train(agents, [1, 1], plot=False)
    assert result["history"]["return/steered"].iloc[-1] > 15


def test_numbers_are_set_and_follow_schedules():
    agent = q_agent(3, 3, epsilon=mt.linear(1.0, 0.0, 100))
    agent.learner().at(25)
    assert agent.hyper.epsilon == 0.75
    agent.hyper.epsilon = 0.3
    agent.learner().at(50)
    assert agent.hyper.epsilon == 0.3
    agent.hyper.gamma = 0.5
    assert agent.learner().gammas() == [0.5]
    with pytest.raises(mt.ConfigError, match="epsilon must be at most 1"):
        agent.hyper.epsilon = 1.5
    with pytest.raises(mt.ConfigError, match="'batch_size' is structural"):
        agent.hyper.batch_size = 3
    with pytest.raises(mt.ConfigError, match="Did you mean 'gamma'"):
        agent.hyper.gama = 0.9


def test_two_runs_with_one_seed_are_identical():
    def run():
        agents = [q_agent(3, 3), actor_critic_agent(3, 3)]
        torch.manual_seed(int(np.random.randint(1000)))  # what is drawn elsewhere must not matter
        trainer(Identity, 240).train(agents, [1, 1], plot=False)
        return [value.clone() for agent in agents for value in agent.model.state_dict().values()]

    assert all(torch.equal(one, two) for one, two in zip(run(), run(), strict=True))


def test_a_seat_that_does_not_learn_is_unchanged_and_a_frozen_copy_stays():
    learning, still = q_agent(3, 3), q_agent(3, 3, seed=1)
    learning.sit(identity_player(), 0)
    frozen: Any = mt.FrozenAgent(learning)
    before = copy.deepcopy((learning.model.state_dict(), still.model.state_dict()))
    trainer(lambda: Identity(players=3), 120).train([learning, still, frozen], [1, 0, 0], plot=False)
    assert all(torch.equal(before[1][k], v) for k, v in still.model.state_dict().items())
    assert all(torch.equal(before[0][k], v) for k, v in frozen.inner.model.state_dict().items())
    assert not all(torch.equal(before[0][k], v) for k, v in learning.model.state_dict().items())


def test_saves_and_loads(tmp_path):
    agents = [q_agent(3, 3, epsilon=mt.linear(1.0, 0.0, 1000)), actor_critic_agent(3, 3)]
    trainer(Identity, 240).train(agents, [1, 1], plot=False)
    mt.save(tmp_path / "agents", agents)
    makers = {"Twins": lambda: q_agent(3, 3, seed=5), "ActorCritic": lambda: actor_critic_agent(3, 3, seed=6)}
    loaded = mt.load(tmp_path / "agents", supply=makers)
    for agent, again in zip(agents, loaded, strict=True):
        one, two = agent.state(), again.state()
        assert one.info == two.info
        assert one.arrays.keys() == two.arrays.keys()
        assert all(np.array_equal(one.arrays[k], two.arrays[k]) for k in one.arrays)
    assert np.array_equal(loaded[0].act(np.arange(3)), agents[0].act(np.arange(3)))
    for supply, came in (({}, "nothing"), ({"Twins": agents[0]}, "CustomAgent"), ({"Twins": Twins(3, 3)}, "Twins")):
        with pytest.raises(mt.SaveError, match=f"a model of your own, 'Twins'.*got {came}"):
            mt.load(tmp_path / "agents", supply=supply)
    with pytest.raises(mt.SaveError, match="does not fit the one supplied"):
        mt.load(tmp_path / "agents", supply={**makers, "Twins": lambda: q_agent(4, 3)})


def test_wrong_use_is_told():
    make = cast(Any, mt.CustomAgent)
    model = Twins(3, 3)
    adam = torch.optim.Adam(model.online.parameters())
    with pytest.raises(mt.AgentError, match=r"optimizers\[0\] \(Adam\) steps parameters that are not the model's"):
        make(Twins(3, 3), q_loss, adam)
    with pytest.raises(mt.AgentError, match="2 losses and 1 optimizers"):
        make(model, [q_loss, q_loss], adam)
    with pytest.raises(mt.AgentError, match=r"optimizers\[0\] must be a torch optimizer, got float"):
        make(model, q_loss, 0.1)
    with pytest.raises(mt.AgentError, match=r"loss_fn\[0\] must be a function"):
        make(model, "mse", adam)
    with pytest.raises(mt.AgentError, match=r"must be a torch\.nn\.Module, got function"):
        make(q_loss, q_loss, adam)
    with pytest.raises(mt.AgentError, match="has no parameters"):
        make(nn.ReLU(), q_loss, adam)
    keras = type("Sequential", (), {"__module__": "keras.models"})()
    with pytest.raises(mt.AgentError, match="Sequential is a Keras model"):
        make(keras, q_loss, adam)
    with pytest.raises(mt.ConfigError, match=r"no setting 'epsilom'\. Did you mean 'epsilon'"):
        make(model, q_loss, adam, epsilom=0.1)
    with pytest.raises(
        mt.ConfigError, match=r"memory must be marltrain\.Replay\(capacity=50000\) or marltrain\.Rollouts"
    ):
        make(model, q_loss, adam, memory=100)
    player = PlayerSpec("p", spaces.Discrete(4), spaces.Discrete(3), Layout(spaces.Discrete(4)))
    with pytest.raises(mt.AgentError, match=r"its observation space is Discrete\(4\)"):
        make(model, q_loss, adam, observation_space=spaces.Discrete(3), action_space=spaces.Discrete(3)).sit(player, 0)


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (lambda model, batch: model(batch.obs).mean(1), r"must return a scalar tensor, got a tensor of shape \(16,\)"),
        (lambda model, batch: 0.0, "must return a scalar tensor, got a float"),
        (lambda model, batch: batch.reward.mean(), "has no gradient"),
        (lambda model, batch: model.target(batch.obs).mean(), "depends on none of its optimizer's parameters"),
    ],
)
def test_a_wrong_loss_is_told_at_the_first_update(loss, told):
    model = Twins(5, 3)
    agent = mt.CustomAgent(model, loss, torch.optim.Adam(model.online.parameters()))
    batch = some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 16)
    with pytest.raises(mt.AgentError, match=told):
        agent.learn(batch, 16)


def test_a_wrong_output_is_told():
    def seated(model, **settings):
        agent = mt.CustomAgent(model, q_loss, torch.optim.SGD(model.parameters(), 0.1), seed=0, **settings)
        agent.sit(identity_player(), 0)
        return agent

    with pytest.raises(mt.AgentError, match=r"model Linear gave shape \(2, 4\) for 2 rows, expected shape \(2, 3\)"):
        seated(nn.Linear(3, 4)).act(np.zeros(2, np.int64))
    wrong = seated(nn.Linear(3, 3), act_fn=lambda model, obs, legal, explore, rng: model(obs))
    with pytest.raises(mt.AgentError, match=r"act_fn gave actions of shape \(2, 3\), expected \(2,\)"):
        wrong.act(np.zeros(2, np.int64))
    illegal = seated(nn.Linear(3, 3), act_fn=lambda model, obs, legal, explore, rng: np.zeros(len(obs), int))
    with pytest.raises(mt.AgentError, match=r"CustomAgent chose action 0 in row 0 of 1, where only \[2\] are legal"):
        illegal.act(np.int64(1), legal=[0, 0, 1])
    space = spaces.MultiDiscrete([2, 2])
    agent = seated(nn.Linear(3, 4))
    agent.action_space = space
    with pytest.raises(mt.AgentError, match=r"have no default: give act_fn="):
        agent.act(np.zeros(2, np.int64))
