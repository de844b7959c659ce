"""tianshou's algorithms in seats: learning, legality, repeatability, saving, and the errors."""

import copy
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.algorithm import DDPG, DQN
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.data import ReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousCritic

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.core.layout import Layout
from marltrain.core.spec import EnvSpec, PlayerSpec
from tests.gymnasium_toys import Film
from tests.policies.agents.tianshou.making import DISCRETE, adam, box_ppo, c51, discrete_ppo, discrete_sac, dqn, sac
from tests.tiers import LONG
from tests.toys import Identity, Relay

KINDS = DISCRETE if LONG else ("dqn", "ppo")
"""One off-policy, one on-policy: the others are of the same classes."""
TICTACTOE = "pettingzoo/classic/tictactoe_v3"


def seated(name, algorithm):
    """An agent around one of DISCRETE, set to learn quickly."""
    if name == "ppo":
        return mt.OnPolicyAgent(algorithm, repeat_per_collect=4, update_freq=128, batch_size=32)
    return mt.OffPolicyAgent(algorithm, update_per_step=0.25, batch_size=32, memory=mt.Replay(2000))


def trainer(env, steps, **settings):
    kept = {"num_train_envs": 4, "num_test_envs": 4, "test_freq": 10_000, "episodes_per_test": 4, "seed": 0}
    return mt.DecentralizedTrainer(env, steps_per_train=steps, progress=False, **{**kept, **settings})


def weights(agent):
    return {name: value.copy() for name, value in agent.state().arrays.items()}


@pytest.mark.parametrize("name", KINDS)
def test_learns_the_identity_game(name):
    agents = [seated(name, DISCRETE[name](3, 3, seed)) for seed in (0, 1)]
    result = trainer(Identity, 800, num_train_envs=8, episodes_per_test=8).train(agents, [1, 1], plot=False)
    assert result["reward_metric_stats"][0] < 6 < 9.5 < result["reward_metric_stats"][-1]


@pytest.mark.parametrize("name", KINDS)
def test_plays_tictactoe_in_both_seats_without_an_illegal_move(name):
    agent = seated(name, DISCRETE[name](18, 9))
    before = weights(agent) if agent.layout else None
    result = trainer(TICTACTOE, 400).train([agent, agent], [1, 1], plot=False)
    assert before is None
    assert result["num_gradient_steps"] > 20
    metrics = result["history"].iloc[-1]
    assert np.isfinite(metrics.filter(like="loss").astype(float)).all()


@pytest.mark.parametrize("name", ["sac", "box ppo", "ddpg"])
def test_trains_on_a_box(name):
    space = spaces.Box(-2, 2, (1,), np.float32)
    agent: Any
    if name == "box ppo":
        agent = mt.OnPolicyAgent(box_ppo(3, space), update_freq=64, batch_size=32)
    else:
        algorithm = sac(3, space) if name == "sac" else ddpg(3, space)
        agent = mt.OffPolicyAgent(algorithm, update_per_step=0.25, learning_starts=40)
    before = copy.deepcopy(agent.algorithm.state_dict())
    result = trainer("gymnasium/Pendulum-v1", 300, episodes_per_test=2, num_test_envs=2).train([agent], [1], plot=False)
    after = agent.algorithm.state_dict()
    assert result["num_gradient_steps"] == {"box ppo": 4 * 2, "sac": 75, "ddpg": 75}[name]
    assert any(not torch.equal(before[key], after[key]) for key in before if isinstance(before[key], torch.Tensor))
    action = agent.act(np.array([[1, 0, 0], [0, 1, 8]], np.float32), explore=True)
    assert action.shape == (2, 1)
    assert (np.abs(action) <= 2).all()


def ddpg(inputs, space):
    torch.manual_seed(0)
    actor = ContinuousActorDeterministic(
        preprocess_net=Net(state_shape=(inputs,), hidden_sizes=[16]), action_shape=space.shape, max_action=1.0
    )
    policy = ContinuousDeterministicPolicy(actor=actor, action_space=space, exploration_noise="default")
    both = Net(state_shape=(inputs,), action_shape=space.shape, hidden_sizes=[16], concat=True)
    return DDPG(policy=policy, policy_optim=adam(), critic=ContinuousCritic(preprocess_net=both), critic_optim=adam())


def test_on_policy_learns_from_raw_actions_and_off_policy_from_those_the_environment_got():
    space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
    policy = box_ppo(3, space)
    policy.policy.actor.mu.model[0].weight.data.zero_()
    policy.policy.actor.mu.model[0].bias.data[:] = torch.tensor([0.5, 3.0])
    agent = mt.OnPolicyAgent(policy, seed=0)
    player = PlayerSpec("p", spaces.Box(-1, 1, (3,)), space, Layout(spaces.Box(-1, 1, (3,))))
    agent.sit(player, 0)
    rows = np.zeros((2, 3), np.float32)
    acted = agent.decide(
        rows, None, None, turn=np.ones(2, bool), explore=np.zeros(2, bool), rng=np.random.default_rng(0)
    )
    assert np.allclose(acted.extras["raw"], [0.5, 3.0])
    assert np.allclose(acted.action, [1.0, 10.0])
    reader = _reader(mt.OffPolicyAgent(sac(3, space), seed=0), player)
    assert np.allclose(reader.buffer.to_raw(acted.action), [0.5, 1.0])


def test_clipped_actions_stay_in_a_box_of_float64():
    """float32(0.1) > 0.1"""
    space = spaces.Box(-0.3, 0.1, (1,), np.float64)
    policy = box_ppo(3, space)
    agent = mt.OnPolicyAgent(policy, seed=0)
    observed = spaces.Box(-1, 1, (3,))
    agent.sit(PlayerSpec("p", observed, space, Layout(observed)), 0)
    for raw in (-9.0, 9.0):
        policy.policy.actor.mu.model[0].weight.data.zero_()
        policy.policy.actor.mu.model[0].bias.data[:] = raw
        assert agent.act(np.zeros(3, np.float32)) in space


def test_a_rollout_of_one_row_waits_for_more_where_advantages_are_normalized():
    """Relay with one environment: of each player one row is closed in every third move or so."""
    agents = [mt.OnPolicyAgent(discrete_ppo(3, 3, k), update_freq=1, batch_size=2, seed=k) for k in range(3)]
    rows = []

    class Watch(mt.Callback):
        def on_update_end(self, moment):
            for metrics in moment.data["metrics"].values():
                rows.append(metrics["loss/actor"])

    trainer(Relay, 40, num_train_envs=1, num_test_envs=1, episodes_per_test=1, callbacks=[Watch()]).train(
        agents, [1, 1, 1], plot=False
    )
    assert 12 < len(rows) < 20  # 40 moves, two rows or more at a time
    assert np.isfinite(rows).all()


def test_minibatches_of_one_row_are_refused_where_advantages_are_normalized():
    def agents(**settings):
        return [mt.OnPolicyAgent(discrete_ppo(3, 3, **settings), update_freq=4, batch_size=1, seed=0), mt.RandomAgent()]

    message = r"batch_size=1, but the agent of player_0 normalizes advantages .* which takes 2 rows. Raise batch_size"
    with pytest.raises(ConfigError, match=message):
        trainer(Identity, 8).train(agents(), [1, 0], plot=False)
    result = trainer(Identity, 8).train(agents(advantage_normalization=False), [1, 0], plot=False)
    assert result["num_updates"] == 2


def _reader(agent, player):
    from marltrain.policies.memory.streams import Storage, Streams

    agent.sit(player, 0)
    return agent.learner().reader(Streams(EnvSpec.of("x", [player]), 1, {0: Storage(4)}), [[0]])


class Picture(torch.nn.Module):
    """A Q-network of one's own for stacks of four frames."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4 * 8 * 8, 2))
        self.shapes = set()

    def forward(self, obs, state=None, info=None):
        self.shapes.add((obs.dtype.name, *obs.shape[1:]))
        return self.layers(torch.as_tensor(obs).float() / 255), state


def test_learns_from_stacked_frames():
    model = Picture()
    policy = DiscreteQLearningPolicy(model=model, action_space=spaces.Discrete(2), eps_training=0.3)
    agent = mt.OffPolicyAgent(DQN(policy=policy, optim=adam(), n_step_return_horizon=2), update_per_step=0.25)
    env = mt.FrameStack(lambda: Film(size=8), 4)
    result = trainer(env, 400, update_freq=20).train([agent], [1], plot=False)
    assert model.shapes == {("uint8", 4, 8, 8)}
    assert result["reward_metric_stats"][-1] == 6


def test_a_prioritized_memory():
    """The algorithm gets weights; its errors become priorities. Only the drawn rows change."""
    algorithm = dqn(3, 3)
    agent = mt.OffPolicyAgent(algorithm, memory=mt.Replay(200, prioritized=mt.Prioritized()), update_per_step=0.25)
    weights, errors, update = [], [], algorithm._update_with_batch

    def watched(batch):
        weights.append(torch.as_tensor(batch.weight).numpy().copy())
        result = update(batch)
        errors.append(np.abs(batch.weight.detach().numpy()))
        return result

    algorithm._update_with_batch = watched
    trainer(Identity, 200).train([agent, mt.RandomAgent()], [1, 0], plot=False)
    assert len(weights) > 20 and all(each.max() == 1 and each.min() > 0 for each in weights)
    assert any(each.min() < 0.9 for each in weights)
    assert np.isfinite(np.concatenate(errors)).all()


def test_reads_the_others_streams_where_memory_is_shared():
    agent = seated("dqn", dqn(3, 3))
    trainer(lambda: Identity(players=2), 300, shared_memory=True).train([agent, mt.RandomAgent()], [1, 0], plot=False)
    assert agent.learner().gradient_steps[0] > 40


def test_exploration_is_an_argument():
    agent = mt.OffPolicyAgent(dqn(3, 3), seed=0)
    agent.algorithm.policy.set_eps_training(1.0)
    agent.algorithm.policy.set_eps_inference(1.0)
    agent.sit(_identity_player(), 0)
    symbols = np.zeros(300, np.int64)
    greedy = agent.act(symbols)
    mixed = agent.act(symbols, explore=np.arange(300) % 2 == 0)
    assert len(set(greedy)) == 1
    assert (mixed[1::2] == greedy[0]).all()
    assert set(mixed[::2]) == {0, 1, 2}


def test_a_policy_that_samples_takes_the_mode_when_it_does_not_explore():
    agent = mt.OnPolicyAgent(discrete_ppo(3, 3), seed=0)
    agent.sit(_identity_player(), 0)
    symbols = np.zeros(200, np.int64)
    assert len(set(agent.act(symbols))) == 1
    assert len(set(agent.act(symbols, explore=True))) == 3
    assert agent.algorithm.policy.deterministic_eval is False
    assert agent.algorithm.policy.is_within_training_step is False


def _identity_player():
    space = spaces.Discrete(3)
    return PlayerSpec("p", space, space, Layout(space))


@pytest.mark.parametrize("name", ["dqn", "ppo", *LONG * ["discrete sac"]])
def test_two_runs_with_one_seed_are_identical(name):
    def run():
        agent = seated(name, DISCRETE[name](18, 9))
        torch.manual_seed(int(np.random.randint(1000)))  # what is drawn elsewhere must not matter
        trainer(TICTACTOE, 200).train([agent, mt.RandomAgent()], [1, 0], plot=False)
        return weights(agent)

    first, second = run(), run()
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[key], second[key], equal_nan=True) for key in first)


def test_global_generators_are_put_back():
    agent = seated("ppo", discrete_ppo(3, 3))
    torch.manual_seed(5), np.random.seed(5)
    expected = (torch.rand(1).item(), np.random.rand())
    torch.manual_seed(5), np.random.seed(5)
    trainer(lambda: Identity(players=1), 200).train([agent], [1], plot=False)
    assert (torch.rand(1).item(), np.random.rand()) == expected


def test_a_mixed_table_trains():
    agents = [
        seated("dqn", dqn(3, 3)), seated("ppo", discrete_ppo(3, 3)), seated("discrete sac", discrete_sac(3, 3)),
        *mt.make_agents("ppo", lambda: Identity(players=1), seed=1, update_freq=64),
        *mt.make_agents("dqn", lambda: Identity(players=1), seed=2, learning_starts=50),
        mt.RandomAgent(), mt.FrozenAgent(mt.RandomAgent()),
    ]  # fmt: skip
    result = trainer(lambda: Identity(players=7), 300).train(agents, [1, 1, 1, 1, 1, 0, 0], plot=False)
    last = result["history"].iloc[-1]
    for player in range(5):
        assert np.isfinite(last[f"player_{player}/loss/total" if player != 2 else "player_2/loss/actor"])


def test_masks_and_frozen_copies():
    learning, still = seated("dqn", dqn(3, 3)), seated("dqn", dqn(3, 3, 1))
    env = trainer(lambda: Identity(players=3), 200)
    learning.sit(_identity_player(), 0)
    frozen: Any = mt.FrozenAgent(learning)
    start = weights(still) if still.layout else copy.deepcopy(still.algorithm.state_dict())
    env.train([learning, still, frozen], [1, 0, 0], plot=False)
    now = still.algorithm.state_dict()
    assert all(torch.equal(start[key], now[key]) for key in start if key != "_optimizers")
    assert not now["_optimizers"][0]["state"]
    inner = frozen.inner.algorithm.state_dict()
    assert any(not torch.equal(inner[k], v) for k, v in learning.algorithm.state_dict().items() if k != "_optimizers")
    assert np.array_equal(frozen.act(np.arange(3)), frozen.act(np.arange(3), explore=True))


@pytest.mark.parametrize(
    ("name", "supplied"), [("dqn", dqn), ("ppo", discrete_ppo), ("c51", c51), ("discrete sac", discrete_sac)]
)
def test_saves_and_loads(name, supplied, tmp_path):
    agent: Any = seated(name, DISCRETE[name](18, 9))
    trainer(TICTACTOE, 200).train([agent, mt.RandomAgent()], [1, 0], plot=False)
    mt.save(tmp_path / "agents", [agent, agent])
    key = type(agent.algorithm).__name__
    loaded, copied = cast(Any, mt.load(tmp_path / "agents", custom_objects={key: lambda: supplied(18, 9, seed=9)}))
    assert loaded is copied
    one, two = weights(agent), weights(loaded)
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[k], two[k]) for k in one)
    assert loaded.settings == agent.settings
    assert loaded.replay == agent.replay
    one, two = agent.state().info, loaded.state().info
    assert one["rest"] == two["rest"]
    assert one["learner"] == two["learner"]
    copied, _ = cast(Any, mt.load(tmp_path / "agents", custom_objects={key: agent.algorithm}))
    assert copied.algorithm is not agent.algorithm
    with pytest.raises(mt.SaveError, match=f"made of tianshou's {key}: give it with custom_objects="):
        mt.load(tmp_path / "agents")
    with pytest.raises(mt.SaveError, match="does not fit the one supplied"):
        mt.load(tmp_path / "agents", custom_objects={key: lambda: supplied(17, 9)})


def test_saves_the_automatic_alpha(tmp_path):
    space = spaces.Box(-2, 2, (1,), np.float32)
    agent = mt.OffPolicyAgent(sac(3, space), update_freq=20, update_per_step=0.25)
    trainer("gymnasium/Pendulum-v1", 40, episodes_per_test=1, num_test_envs=1).train([agent], [1], plot=False)
    agent.save(tmp_path / "agent")
    loaded: Any
    (loaded,) = mt.load(tmp_path / "agent", custom_objects={"SAC": lambda: sac(3, space, 7)})
    moments = [a.algorithm.alpha._optim.state_dict()["state"][0]["exp_avg"] for a in (agent, loaded)]
    assert moments[0] == moments[1] != 0


def test_wrong_use_is_told():
    off, on = cast(Any, mt.OffPolicyAgent), cast(Any, mt.OnPolicyAgent)
    net = dqn(3, 3)
    with pytest.raises(mt.AgentError, match=r"takes a tianshou OnPolicyAlgorithm, got DQN. Use OffPolicyAgent for it"):
        on(net)
    with pytest.raises(mt.AgentError, match=r"got DiscreteQLearningPolicy\. Give an algorithm"):
        off(net.policy)
    with pytest.raises(mt.ConfigError, match=r"got a buffer \(ReplayBuffer\).*memory=marltrain.Replay\(capacity=200\)"):
        off(net, memory=ReplayBuffer(200))
    with pytest.raises(mt.ConfigError, match="n_step_return_horizon"):
        off(net, memory=mt.Replay(100, n_step=3))
    with pytest.raises(mt.ConfigError, match=r"memory must be marltrain.Rollouts\(\), got Replay"):
        on(discrete_ppo(3, 3), memory=mt.Replay(100))
    with pytest.raises(mt.ConfigError, match="update_per_step must be greater than 0"):
        off(net, update_per_step=0.0)
    with pytest.raises(mt.ConfigError, match="Replay: capacity must be at least 1"):
        mt.Replay(0)
    agent = mt.OffPolicyAgent(dqn(3, 5))
    with pytest.raises(mt.AgentError, match=r"player 'p': its action space is Discrete\(3\)"):
        agent.sit(_identity_player(), 0)
    with pytest.raises(mt.AgentError, match="has no seat yet"):
        agent.act(np.zeros(3))
    wide = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    with pytest.raises(mt.AgentError, match="action_scaling=False"):
        on(box_ppo(3, wide))


def test_a_policy_that_ignores_the_mask_is_told():
    algorithm = dqn(18, 9)
    algorithm.policy.compute_q_value = lambda logits, mask: logits
    agent = seated("dqn", algorithm)
    with pytest.raises(mt.AgentError, match=r"chose action .* where only .* are legal"):
        trainer(TICTACTOE, 200).train([agent, mt.RandomAgent()], [1, 0], plot=False)
