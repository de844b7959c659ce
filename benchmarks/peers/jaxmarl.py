"""JaxMARL: its jitted simple_spread under independent PPO and double DQN, the whole loop compiled as one (W1, W4, W2).

    .venv-peers/jaxmarl/bin/python -m benchmarks.peers.jaxmarl W1 [--seconds 30] [--seed 0]

JaxMARL's package contains environments; its learners are separate scripts. The learner in this file is written for the
comparison in the same form: one compiled function collects and learns, with `vmap` over agents.
"""

from __future__ import annotations

import os

if len(os.sched_getaffinity(0)) == 1:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

from collections.abc import Callable
from typing import Any

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxmarl
import numpy as np
import optax
from flax.linen.initializers import orthogonal
from jaxmarl.wrappers.baselines import LogWrapper

from benchmarks.peers import common
from benchmarks.peers.common import WATCH

ACTIONS, CHUNK = 5, 1_000
Tree = Any


class Network(nn.Module):
    """Two hidden layers and a head."""

    outputs: int
    gain: float
    activation: Callable[[Any], Any] = nn.tanh

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Return outputs [..., outputs]."""
        for _ in range(2):
            x = self.activation(nn.Dense(common.WIDTH, kernel_init=orthogonal(2**0.5))(x))
        return nn.Dense(self.outputs, kernel_init=orthogonal(self.gain))(x)


ACTOR, CRITIC, Q = Network(ACTIONS, 0.01), Network(1, 1.0), Network(ACTIONS, 1.0, nn.relu)


class Game:
    """simple_spread with arrays stacked over players: observations [P, E, D], actions and rewards [P, E]."""

    def __init__(self, players: int, envs: int) -> None:
        self.env = LogWrapper(jaxmarl.make("MPE_simple_spread_v3", num_agents=players, num_landmarks=players))
        self.players, self.envs = players, envs

    def _stacked(self, by_name: Tree) -> Any:
        return jnp.stack([by_name[name] for name in self.env.agents])

    def reset(self, key: Any) -> tuple[Any, Tree]:
        """Return observations and state."""
        obs, state = jax.vmap(self.env.reset)(jax.random.split(key, self.envs))
        return self._stacked(obs), state

    def step(self, key: Any, state: Tree, actions: Any) -> tuple[Any, Tree, Any, Any, tuple[Any, Any]]:
        """Return observations, state, rewards [P, E], ends [E], and (episode ended, its mean return) [E]."""
        named = {name: actions[player] for player, name in enumerate(self.env.agents)}
        obs, state, rewards, ends, info = jax.vmap(self.env.step)(jax.random.split(key, self.envs), state, named)
        data = info["returned_episode"][:, 0], info["returned_episode_returns"].mean(-1)
        return self._stacked(obs), state, self._stacked(rewards), ends["__all__"], data


def advantages(rewards: Any, ends: Any, values: Any, last: Any) -> Any:
    """Return generalized advantages [T, P, E] from values [T, P, E] and the value after them, `last` [P, E]."""

    def back(carry: Any, row: Any) -> Any:
        trace, following = carry
        reward, goes_on, value = row[0], 1.0 - row[1], row[2]
        delta = reward + common.GAMMA * following * goes_on - value
        trace = delta + common.GAMMA * common.LAMBDA * goes_on * trace
        return (trace, value), trace

    return jax.lax.scan(back, (jnp.zeros_like(last), last), (rewards, ends, values), reverse=True)[1]


def ppo_loss(params: Tree, rows: Tree) -> Any:
    """Return one agent's loss on a minibatch."""
    obs, action, old, advantage, target = rows
    policy = distrax.Categorical(logits=ACTOR.apply(params["actor"], obs))
    value = CRITIC.apply(params["critic"], obs)[..., 0]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = jnp.exp(policy.log_prob(action) - old)
    clipped = jnp.clip(ratio, 1 - common.CLIP, 1 + common.CLIP)
    gain = jnp.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = 0.5 * jnp.square(value - target).mean()
    return common.VALUE * value_loss - gain - common.ENTROPY * policy.entropy().mean()


class PPO:
    """Independent PPO: `start` returns the carry of `update`, which collects, learns and returns finished episodes."""

    def __init__(self, game: Game) -> None:
        self.game, self.steps = game, common.STEPS * game.envs
        self.optimizer = optax.chain(
            optax.clip_by_global_norm(common.MAX_NORM), optax.adam(common.PPO_RATE, eps=1e-5)
        )  # fmt: skip

    def start(self, key: Any) -> Tree:
        """Return (parameters, optimizer state, observations, game state, key)."""
        key, for_game, for_actors, for_critics = jax.random.split(key, 4)
        obs, state = self.game.reset(for_game)
        params = {
            name: jax.vmap(network.init)(jax.random.split(keys, self.game.players), obs)
            for name, network, keys in (("actor", ACTOR, for_actors), ("critic", CRITIC, for_critics))
        }
        return params, jax.vmap(self.optimizer.init)(params), obs, state, key

    def update(self, carry: Tree) -> tuple[Tree, Tree]:
        """Collect STEPS batch steps and learn from them."""
        params, optimizer, obs, state, key = carry
        (obs, state, key), (rows, data) = jax.lax.scan(
            lambda inner, _: self._act(params, inner), (obs, state, key), None, common.STEPS
        )
        seen, actions, old, values, rewards, ends = rows
        last = jax.vmap(CRITIC.apply)(params["critic"], obs)[..., 0]
        gained = advantages(rewards, ends, values, last)
        columns = tuple(
            jnp.moveaxis(column, 1, 0).reshape(self.game.players, -1, *column.shape[3:])
            for column in (seen, actions, old, gained, gained + values)
        )
        (params, optimizer, key), _ = jax.lax.scan(
            lambda inner, _: self._epoch(columns, inner), (params, optimizer, key), None, common.EPOCHS
        )
        return (params, optimizer, obs, state, key), data

    def _act(self, params: Tree, carry: Tree) -> tuple[Tree, Tree]:
        obs, state, key = carry
        key, for_actions, for_game = jax.random.split(key, 3)
        policy = distrax.Categorical(logits=jax.vmap(ACTOR.apply)(params["actor"], obs))
        values = jax.vmap(CRITIC.apply)(params["critic"], obs)[..., 0]
        actions, old = policy.sample_and_log_prob(seed=for_actions)
        after, state, rewards, ends, data = self.game.step(for_game, state, actions)
        ends = jnp.broadcast_to(ends, rewards.shape).astype(jnp.float32)
        return (after, state, key), ((obs, actions, old, values, rewards, ends), data)

    def _epoch(self, columns: Tree, carry: Tree) -> tuple[Tree, None]:
        params, optimizer, key = carry
        players, rows = columns[0].shape[:2]
        key, for_order = jax.random.split(key)
        order = jax.vmap(lambda one: jax.random.permutation(one, rows))(jax.random.split(for_order, players))
        mixed = (jax.vmap(lambda column, at: column[at])(column, order) for column in columns)
        cut = tuple(
            jnp.moveaxis(column.reshape(players, common.MINIBATCHES, -1, *column.shape[2:]), 1, 0) for column in mixed
        )
        (params, optimizer), _ = jax.lax.scan(self._minibatch, (params, optimizer), cut)
        return (params, optimizer, key), None

    def _minibatch(self, carry: Tree, rows: Tree) -> tuple[Tree, None]:
        def one(params: Tree, optimizer: Tree, rows: Tree) -> tuple[Tree, Tree]:
            moves, optimizer = self.optimizer.update(jax.grad(ppo_loss)(params, rows), optimizer, params)
            return optax.apply_updates(params, moves), optimizer

        return jax.vmap(one)(*carry, rows), None


def dqn_loss(params: Tree, target: Tree, rows: Tree) -> Any:
    """Return one agent's double-Q loss on a batch."""
    obs, action, reward, following, end = rows
    best = Q.apply(params, following).argmax(-1)
    value = jnp.take_along_axis(Q.apply(target, following), best[:, None], 1)[:, 0]
    wanted = jax.lax.stop_gradient(reward + common.GAMMA * (1.0 - end) * value)
    found = jnp.take_along_axis(Q.apply(params, obs), action[:, None], 1)[:, 0]
    return optax.huber_loss(found, wanted).mean()


class DQN:
    """Independent double DQN in one environment; the carry holds the replay buffer's arrays."""

    def __init__(self, game: Game) -> None:
        self.game, self.steps = game, CHUNK
        self.optimizer = optax.adam(common.DQN_RATE)

    def start(self, key: Any) -> Tree:
        """Return (parameters, targets, optimizer state, memory, environment steps, observations, game state, key)."""
        key, for_game, for_networks = jax.random.split(key, 3)
        obs, state = self.game.reset(for_game)
        players = self.game.players
        params = jax.vmap(Q.init)(jax.random.split(for_networks, players), obs)
        kinds = ((obs.shape[2:], obs.dtype), ((), jnp.int32), ((), jnp.float32), (obs.shape[2:], obs.dtype),
                 ((), jnp.float32))  # fmt: skip
        memory = tuple(jnp.zeros((players, common.REPLAY, *shape), dtype) for shape, dtype in kinds)
        target = jax.tree.map(jnp.copy, params)
        return params, target, jax.vmap(self.optimizer.init)(params), memory, jnp.int32(0), obs, state, key

    def update(self, carry: Tree) -> tuple[Tree, Tree]:
        """Make CHUNK environment steps, with the gradient steps that fall due."""
        return jax.lax.scan(self._step, carry, None, CHUNK)

    def _step(self, carry: Tree, _: None) -> tuple[Tree, Tree]:
        params, target, optimizer, memory, count, obs, state, key = carry
        key, for_coins, for_choices, for_game, for_rows = jax.random.split(key, 5)
        epsilon = jnp.maximum(common.EPSILON, 1 - (1 - common.EPSILON) * count / common.EPSILON_STEPS)
        greedy = jax.vmap(Q.apply)(params, obs).argmax(-1)
        at_random = jax.random.randint(for_choices, greedy.shape, 0, ACTIONS)
        actions = jnp.where(jax.random.uniform(for_coins, greedy.shape) < epsilon, at_random, greedy)
        after, state, rewards, ends, data = self.game.step(for_game, state, actions)
        ends = jnp.broadcast_to(ends, rewards.shape).astype(jnp.float32)
        row = (obs, actions, rewards, after, ends)
        memory = tuple(
            column.at[:, count % common.REPLAY].set(value[:, 0]) for column, value in zip(memory, row, strict=True)
        )
        count = count + 1
        due = (count >= common.LEARNING_STARTS) & (count % common.EVERY == 0)
        params, optimizer = jax.lax.cond(
            due, lambda: self._learn(params, target, optimizer, memory, count, for_rows), lambda: (params, optimizer)
        )
        fresh = count % common.TARGET_EVERY == 0
        target = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), params, target)
        return (params, target, optimizer, memory, count, after, state, key), data

    def _learn(self, params: Tree, target: Tree, optimizer: Tree, memory: Tree, count: Any, key: Any) -> Any:
        def one(params: Tree, target: Tree, optimizer: Tree, memory: Tree, at: Any) -> tuple[Tree, Tree]:
            rows = tuple(column[at] for column in memory)
            moves, optimizer = self.optimizer.update(jax.grad(dqn_loss)(params, target, rows), optimizer)
            return optax.apply_updates(params, moves), optimizer

        shape = (self.game.players, common.ROWS)
        at = jax.random.randint(key, shape, 0, jnp.minimum(count, common.REPLAY))
        return jax.vmap(one)(params, target, optimizer, memory, at)


def main() -> None:
    """Compile, then train until the time is over."""
    task = common.task_of(__doc__, "W1", "W4", "W2")
    game = Game(task.players, task.envs)
    learner = DQN(game) if task.work == "W2" else PPO(game)
    carry = jax.jit(learner.start)(jax.random.PRNGKey(task.seed))
    compiled = jax.jit(learner.update, donate_argnums=0).lower(carry).compile()
    over = False
    while not over:
        carry, data = compiled(carry)
        ended, returns = (np.asarray(column).ravel() for column in data)
        WATCH.steps += learner.steps
        WATCH.returns += returns[ended.astype(bool)].tolist()
        over = WATCH.lap(task.seconds)
    common.report("jaxmarl", task, ("jaxmarl", "jax", "flax", "optax"), networks="separate")


if __name__ == "__main__":
    main()
