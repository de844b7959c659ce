"""Recurrent networks in runs: updates see what acts saw, and games are solved that need a memory."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.layout import arrays_of, map_tree
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.memory_games import Recall
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import of_agent
from tests.tiers import LONG, rounds
from tests.toys import Crowd, Relay
from tests.trainer.running import changed, noted_batches, trainer, weights

GRU, LSTM = mt.GRU((6,), units=5, sequence_length=3), mt.LSTM((), units=4, sequence_length=3)
UNMOVED: dict[str, Any] = {"learning_rate": 0.0, "epochs": 1, "minibatches": 2, "seed": 0, "max_grad_norm": None}
"""Updates of such agents change no weight, so that all rows are those of one policy."""


def carries(batch: Any, network: str) -> np.ndarray:
    """The stored carries of a network, the only one of its name in the batch."""
    (found,) = (array for name, array in batch.extras.items() if name.startswith(f"carry/{network}/"))
    return found


def moved_on(net: Any, obs: Any, carry: np.ndarray) -> np.ndarray:
    """The next carries of single rows, in numpy."""
    after: np.ndarray = net(obs, carry)[-1]
    return after


@pytest.mark.parametrize("network", [GRU, LSTM], ids=["gru", "lstm"])
@pytest.mark.parametrize(
    ("env", "args", "algo", "settings"),
    [
        (Relay, {"truncate": True}, "ppo", {"share": True}),
        (Relay, {"length": 13}, "a2c", {"shared_trunk": True}),
        (Crowd, {"length": 7}, "ppo", {}),
        (Crowd, {"length": 7, "truncate": False}, "mappo", {"critic_input": "own", "normalize_values": None}),
    ],
)
def test_updates_see_what_acts_saw(env, args, algo, settings, network, monkeypatch):
    """By turns and together, with players that die, are absent or truncated: probabilities and values of each row.

    The values of what follows are those of its observation, with the carry that the next act would get.
    """
    own = UNMOVED if algo != "a2c" else {k: v for k, v in UNMOVED.items() if k != "epochs"}
    agents = mt.make_agents(algo, env, env_args=args, network=network, **own, **settings)
    seen, prepared = noted_batches(monkeypatch), []
    original = AlgorithmLearner._prepared

    def noting(learner: Any, nets: Any, batch: Any) -> Any:
        tensors = original(learner, nets, batch)
        with learner.backend.no_gradient():
            values = learner.algorithm._values(nets, batch, tensors)
            ratio = learner.algorithm._log_ratio(learner.backend.ops, nets, tensors)
        prepared.append((learner, *values, ratio.numpy()))
        return tensors

    monkeypatch.setattr(AlgorithmLearner, "_prepared", noting)
    trainer(env, args, steps_per_train=130, update_freq=40).train(agents, [1, 1, 1], plot=False)
    assert len(seen) == len(prepared) >= 3
    ends = 0
    for batch, (learner, value, follows, ratio) in zip(seen, prepared, strict=True):
        there = batch.weight > 0
        assert there.shape[1] % 3 == 0
        assert np.abs(ratio[there]).max() < 1e-5
        (name, head), algorithm = learner.algorithm.critic_head, learner.algorithm
        net, carry = learner.weights.nets[name].in_numpy(), carries(batch, name)
        np.testing.assert_allclose(value[there], net(batch.obs, carry)[head][..., 0][there], atol=1e-5)
        after = moved_on(net, batch.obs, carry)
        for k, row in np.argwhere(there & (batch.boot >= 0)):
            following = map_tree(itemgetter((slice(None), batch.boot[k, row : row + 1])), batch.boot_obs)
            given = net(following, after[:, row : row + 1])[head][..., 0]
            assert follows[k, row] == pytest.approx(given[k, 0], abs=1e-5)
            ends += int(batch.truncated[k, row])
        for k, row in np.argwhere(there & (batch.boot < 0)):
            np.testing.assert_allclose(after[k, row], carry[k, row + 1], atol=1e-5)
            assert follows[k, row] == value[k, row + 1]
        starts = arrays_of(batch.obs)[0][..., 0] == 0
        assert not carry[starts & there].any() or env is Relay
        assert algorithm.compiled_form() is None
    assert ends > 0 or not args.get("truncate", env is Crowd)


@pytest.mark.parametrize(
    ("env", "args", "settings"),
    [(Relay, {"truncate": True}, {"double": False}), (Crowd, {"length": 7}, {"dueling": True})],
)
def test_replayed_sequences_have_the_values_of_their_acts(env, args, settings, monkeypatch):
    """Of agents whose weights do not change: rows follow each other, and so do their carries and targets."""
    agents = mt.make_agents("dqn", env, env_args=args, network=LSTM, seed=0, learning_rate=0.0, learning_starts=40,
                            update_per_step=0.1, target_sync=1, gamma=0.9, **settings)  # fmt: skip
    batches = noted_batches(monkeypatch)
    trainer(env, args, steps_per_train=120, update_freq=40, batch_size=14).train(agents, [1, 1, 1], plot=False)
    learners: list[Any] = [agent.learner() for agent in agents]
    assert len(batches) > 3
    for batch in batches:
        learner = next(one for one in learners if one.algorithm.layout.vector_size == batch.obs.shape[-1])
        algorithm, net = learner.algorithm, learner.weights.nets["q"].in_numpy()
        tensors = learner._whole(batch, every=False)
        with learner.backend.no_gradient():
            heads = algorithm.heads(learner.weights.nets["q"], tensors, "")
            algorithm._targets(learner.backend.ops, learner.weights.nets, tensors, {})
        there, carry, follows = batch.weight > 0, carries(batch, "q"), ~batch.begins[:, 1:]
        assert there.shape[1] == 15  # 5 sequences of 3 rows
        assert follows.any() and batch.begins[~there].all()
        outputs = net(batch.obs, carry)
        for result, expected in zip(heads, outputs[:-1], strict=True):
            np.testing.assert_allclose(result.numpy()[there], expected[there], atol=1e-5)
        for now, before in ((carry, outputs[-1]), (batch.obs, batch.next_obs)):
            np.testing.assert_allclose(now[:, 1:][follows], before[:, :-1][follows], atol=1e-5)
        q = algorithm.values(
            learner.backend.ops, [learner.backend.tensor(o) for o in net(batch.next_obs, outputs[-1])[:-1]]
        )
        best = np.where(True if batch.next_legal is None else batch.next_legal, q.numpy(), -np.inf).max(-1)
        target = batch.reward + batch.discount * best
        np.testing.assert_allclose(tensors.target.numpy()[there], target[there], rtol=1e-4, atol=1e-4)


def test_players_that_wait_keep_their_carry(monkeypatch):
    """By turns: a player's first act starts from zero, each later one from what its last one left."""
    agents = mt.make_agents("ppo", Relay, network=GRU, **UNMOVED)
    seen = noted_batches(monkeypatch)
    trainer(Relay, {}, steps_per_train=90, update_freq=90).train(agents, [1, 1, 1], plot=False)
    (batch,) = seen
    for k in range(3):
        first = np.concatenate([[True], batch.cut[k, :-1]]) & (batch.weight[k] > 0)
        assert first.sum() > 3
        assert not carries(batch, "actor")[k][first].any()
        assert carries(batch, "actor")[k][~first & (batch.weight[k] > 0)].any(-1).all()


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_agents_of_equal_spaces_have_different_networks(algo, monkeypatch):
    """In one group, a GRU, an LSTM and an MLP: each learns from the carries of its own network."""
    networks = [mt.GRU((6,), units=5, sequence_length=3), LSTM, mt.MLP((4,))]
    own = {"seed": 0, "learning_rate": 0.0, "learning_starts": 30}
    result: list[Any] = [
        mt.make_agents(algo, Relay, network=network, **(UNMOVED if algo == "ppo" else own)) for network in networks
    ]
    seen = noted_batches(monkeypatch)
    trainer(Relay, {}, steps_per_train=180, update_freq=90).train(
        [result[i][i] for i in range(3)], [1, 1, 1], plot=False
    )
    batches = {sum(array.shape[-1] for n, array in batch.extras.items() if "carry" in n): batch for batch in seen}
    assert sorted(batches) == ([0, 10, 16] if algo == "ppo" else [0, 5, 8])  # PPO: of the actor and of the critic
    network = "actor" if algo == "ppo" else "q"
    for i, batch in enumerate(batches[width] for width in sorted(batches)[1:]):
        net, carry = result[i][i].learner_.weights.nets[network].in_numpy(), carries(batch, network)
        follows = ~batch.begins[:, 1:] & (batch.weight[:, 1:] > 0)
        assert follows.sum() > 3 and carry[:, 1:][follows].any(-1).all()
        np.testing.assert_allclose(carry[:, 1:][follows], moved_on(net, batch.obs, carry)[:, :-1][follows], atol=1e-5)


@pytest.mark.parametrize("backend", [name for name in BOTH if name == "torch" or LONG])
def test_stacked_agents_learn_as_single_ones(backend, monkeypatch):
    """Ragged rollouts of a run, of all agents in one learner, and of each in its own."""
    result: dict[str, Any] = {"network": GRU, "backend": backend, "minibatches": 2}
    seen = noted_batches(monkeypatch)
    agents: list[Any] = mt.make_agents("ppo", Relay, seed=0, **result)
    trainer(Relay, {}, steps_per_train=80, update_freq=40).train(agents, [1, 1, 1], plot=False)
    batches = list(seen)
    first = agents[0]
    together = AlgorithmLearner(first.algorithm, first.backend, [0, 1, 2], draw=True)
    alone = [AlgorithmLearner(first.algorithm, first.backend, [seed], draw=True) for seed in range(3)]
    for batch in batches:
        together.update(batch, learn=np.ones(3, bool), batch_size=9)
        for k, one in enumerate(alone):
            rows = -(-int((batch.weight[k] > 0).sum()) // 3) * 3
            one.update(of_agent(batch, k, rows), learn=np.ones(1, bool), batch_size=9)
    for k, one in enumerate(alone):
        mine = together.export(k).arrays
        for name, array in one.export(0).arrays.items():
            np.testing.assert_allclose(mine[name], array, atol=2e-5, err_msg=name)


REPLAYED: dict[str, Any] = {
    "learning_rate": 5e-3, "learning_starts": 200, "update_per_step": 0.1, "epsilon": mt.linear(1, 0.05, 2_500),
    "target_sync": 50, "batch_size": 80, "gamma": 0.95,
}  # fmt: skip


@pytest.mark.parametrize("backend", BOTH)
def test_an_agent_acts_over_an_episode_outside_of_a_run(backend):
    """With its carry: as the loop does; without: as at the start of an episode. Single observations and batches."""
    agent: Any = mt.make_agents("ppo", Recall, seed=3, network=LSTM, backend=backend)[0]
    seen = np.random.default_rng(0).uniform(-1, 1, (6, 2, 2)).astype(np.float32)
    net, zero = agent.learner_.weights.nets["actor"].in_numpy(), np.zeros((1, 2, 8), np.float32)
    carry, kept, alone = zero, None, None
    for obs in seen:
        logits, carry = net(obs[None], carry)
        action, kept = agent.act_with_carry(obs, kept)
        assert action.tolist() == logits[0].argmax(-1).tolist()
        np.testing.assert_allclose(kept["actor"], carry[0], atol=1e-6)
        single, alone = agent.act_with_carry(obs[1], alone)
        assert single == action[1]
        assert agent.act(obs).tolist() == net(obs[None], zero)[0][0].argmax(-1).tolist()


@pytest.mark.parametrize(
    ("algo", "settings", "run", "words"),
    [
        ("dqn", {}, {"shared_memory": True}, "the carries of their own networks"),
        ("ppo", {"minibatches": 5}, {"update_freq": 12}, "minibatches=5 exceeds the 4 sequences of 3 rows"),
    ],
)
def test_runs_that_are_refused(algo, settings, run, words):
    agents = mt.make_agents(algo, Recall, seed=0, network=GRU, **settings)
    with pytest.raises(mt.ConfigError, match=words):
        trainer(Recall, {}, steps_per_train=40, **run).train(agents, [1, 1], plot=False)


def test_the_noise_of_gradients_is_not_measured():
    agent: Any = mt.make_agents("dqn", Recall, seed=0, network=GRU)[0]
    with pytest.raises(mt.ConfigError, match="every second row"):
        agent.learner_.measured.ask("gradient_noise")


SOLVED: dict[str, Any] = {"learning_rate": 5e-3, "minibatches": 2, "epochs": 4, "gamma": 0.95}
SMALL = mt.GRU((8,), units=8, sequence_length=5)
GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "gru": ("ppo", {"network": SMALL}),
    "lstm, shared trunk": ("ppo", {"network": mt.LSTM((), units=8, sequence_length=5), "shared_trunk": True}),
    "critic of its own": ("ppo", {"network": SMALL, "critic_network": mt.MLP((8,)), "share": True}),
    "mappo": ("mappo", {"network": SMALL, "backend": "tensorflow"}),
    "dqn": ("dqn", {"network": SMALL}),
    "dqn, sequences shorter than the corridor": ("dqn", {"network": mt.GRU((8,), units=24, sequence_length=3)}),
    "dqn, burn-in": ("dqn", {"network": mt.LSTM((8,), units=8, sequence_length=7), "burn_in": 2}),
    "c51": ("c51", {"network": mt.GRU((8,), units=16, sequence_length=5), "v_min": -1.0, "v_max": 1.0, "atoms": 11}),
    "sac": ("sac", {"network": SMALL, "temperature": 0.1, "tau": 0.02}),
}


def learned(algo: str, settings: dict[str, Any], seed: int, **args: Any) -> list[float]:
    """Mean rewards of a player in tests, before and after a training."""
    own = SOLVED if algo in ("ppo", "mappo") else REPLAYED
    if algo == "sac":
        own = {name: value for name, value in own.items() if name not in ("epsilon", "target_sync")}
    agents = mt.make_agents(algo, Recall, env_args=args, seed=seed, **own, **settings)
    result = trainer(
        Recall, args, num_train_envs=8, num_test_envs=8, episodes_per_test=40, update_freq=320,
        steps_per_train=rounds(4_000, 8_000), seed=seed,
    )  # fmt: skip
    rewards: list[float] = result.train(agents, [1, 1], plot=False)["reward_metric_stats"]
    return rewards


@pytest.mark.parametrize("case", [name for name in GAMES if name in ("gru", "lstm, shared trunk") or LONG])
@pytest.mark.parametrize("seed", range(rounds(1, 5)))
def test_a_cue_is_remembered(case, seed):
    first, last = learned(*GAMES[case], seed=seed)
    assert abs(first) < 0.6
    assert last == 1.0


@pytest.mark.parametrize("seed", range(rounds(1, 5)))
def test_a_cue_is_forgotten_without_a_memory(seed):
    assert abs(learned("ppo", {"network": mt.MLP((8, 8))}, seed)[-1]) < 0.5


@pytest.mark.parametrize("backend", BOTH)
def test_a_saved_agent_remembers_in_both_frameworks(tmp_path, backend):
    """Loaded into each framework: the same tests; and one plays on from there."""
    agents = mt.make_agents("ppo", Recall, seed=0, network=LSTM, **{**SOLVED, "epochs": 1})
    result = trainer(Recall, {}, steps_per_train=640, update_freq=320)
    result.train(agents, [1, 1], plot=False)
    mt.save(tmp_path / "agents", agents)
    again: list[Any] = mt.load(tmp_path / "agents", backend=backend)
    assert again[0].settings.network == LSTM
    expected, found = (trainer(Recall, {}).test(line_up, 20).returns for line_up in (agents, again))
    np.testing.assert_array_equal(expected, found)
    before = weights(again)
    trainer(Recall, {}, steps_per_train=320, update_freq=320, run_dir="on").train(again, [1, 1], plot=False)
    assert all(changed(before, weights(again)))


def test_rollouts_with_earlier_rows():
    """Sequences of the replay memory start from their stored carries, too."""
    memory = mt.Replay(400, prioritized=mt.Prioritized())
    agents: list[Any] = mt.make_agents(
        "ppo", Recall, seed=0, network=GRU, memory=memory, sequence_length=4, normalize_observations=True
    )
    before = weights(agents)
    trainer(Recall, {}, steps_per_train=160, update_freq=40, batch_size=8).train(agents, [1, 1], plot=False)
    assert all(changed(before, weights(agents)))
