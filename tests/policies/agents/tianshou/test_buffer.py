"""The buffer that is a view: tianshou's targets on ragged turn-based games, against slow loops over lists."""

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tianshou.utils.torch_utils import policy_within_training_step

from marltrain.policies.agents.tianshou.acting import masking
from marltrain.policies.agents.tianshou.buffer import ReplayView, RolloutView
from marltrain.policies.memory.needs import Column, Needs
from tests.policies.agents.tianshou.making import after, discrete_ppo, dqn, places, ragged, row_at

SEATS = [[0, 2]]
GAMMA = 0.9


def same(action):
    return action


def replay(streams):
    return streams.reader(SEATS, Needs(False), partial(ReplayView, to_raw=same))


def rollouts(streams, needs=None):
    return streams.reader(SEATS, needs or Needs(True), partial(RolloutView, to_raw=same))


def tame(algorithm):
    """Bring values down to the size of 1: the game's observations are in the hundreds."""
    for name, parameter in algorithm.named_parameters():
        if name.endswith("model.model.0.weight"):
            parameter.data.mul_(0.01)


def test_nothing_is_copied():
    seen: list[bool] = []

    def on_step(t, streams, record):
        if t == 30:
            ring, buffer = streams.rings[0], replay(streams).sample([np.random.default_rng(0)], np.ones(1), 4)
            pairs = [
                (buffer.obs.obs, ring.obs["vector"]), (buffer.obs.mask, ring.legal), (buffer.act, ring.action),
                (buffer.rew, ring.reward), (buffer.terminated, ring.terminated),
            ]  # fmt: skip
            seen.extend(np.shares_memory(view, column) and view.size == column.size for view, column in pairs)

    ragged(0, on_step, steps=31)
    assert seen == [True] * 5


@pytest.mark.parametrize("seed", range(4))
def test_three_step_targets_equal_a_slow_loop(seed):
    algorithm = dqn(2, 3, seed, n_step_return_horizon=3)
    tame(algorithm)
    for parameter in algorithm.model_old.parameters():  # a target that is not the online network
        parameter.data.mul_(0.7)
    compared = {"end": 0, "open": 0, "full": 0}

    def value(obs, legal):
        """Double Q-learning by hand: the best legal action of the online network, valued by the target."""
        nets = algorithm.policy.model, algorithm.model_old
        online, target = (np.asarray(net(obs[None])[0].detach())[0] for net in nets)
        return target[np.where(legal, online, online.min() - 1).argmax() if legal.any() else online.argmax()]

    def slow(row):
        total, row_now = 0.0, row
        for i in range(3):
            total += GAMMA**i * row_now.reward
            obs, legal, terminated, ended = after(row_now)
            last = ended or i == 2 or row_now.next.closed_at is None
            if last:
                compared["end" if ended else "full" if i == 2 else "open"] += 1
                return total + (0.0 if terminated else GAMMA ** (i + 1) * value(obs, legal))
            row_now = row_now.next
        raise AssertionError

    def on_step(t, streams, record):
        if t < 40 or t % 20:
            return
        buffer = replay(streams).sample([np.random.default_rng(t)], np.ones(1), 64)
        with policy_within_training_step(algorithm.policy), masking(algorithm, True):
            batch, indices = buffer.sample(64)
            batch = algorithm._preprocess_batch(batch, buffer, indices)
        rows = [row_at(record, *place) for place in places(streams.rings[0], indices)]
        assert {player for player, _, _ in places(streams.rings[0], indices)} <= {0, 2}
        assert np.array_equal(batch.obs.obs, np.stack([row.obs for row in rows]))
        assert np.array_equal(batch.act, [row.action for row in rows])
        assert np.allclose(batch.rew, [row.reward for row in rows])
        wanted = [slow(row) for row in rows]
        np.testing.assert_allclose(batch.returns.numpy().ravel(), wanted, atol=1e-5)

    ragged(seed, on_step)
    assert min(compared.values()) > 5, compared


@pytest.mark.parametrize("seed", range(4))
def test_gae_equals_a_slow_loop_and_each_row_is_used_once(seed):
    lam = 0.8
    algorithm = discrete_ppo(2, 3, seed, gae_lambda=lam, advantage_normalization=False)
    tame(algorithm)
    used: list[Any] = []
    readers: list[Any] = []
    ends = [0, 0, 0]

    def critic(obs):
        return float(algorithm.critic(obs[None]).detach())

    def slow(row, taken):
        obs, _, terminated, ended = after(row)
        ahead = 0.0 if terminated else critic(obs)
        delta = row.reward + GAMMA * ahead - critic(row.obs)
        ends[2 if not ended else int(terminated)] += 1
        follows = not ended and id(row.next) in taken
        return delta + (GAMMA * lam * slow(row.next, taken) if follows else 0.0)

    def on_step(t, streams, record):
        if not readers:
            readers.append(rollouts(streams))
        if t % 17 or not readers[0].size()[0]:
            return
        buffer = readers[0].take(np.ones(1))
        with policy_within_training_step(algorithm.policy), masking(algorithm, True):
            batch, indices = buffer.sample(0)
            batch = algorithm._preprocess_batch(batch, buffer, indices)
        rows = [row_at(record, *place) for place in places(streams.rings[0], indices)]
        used.extend(rows)
        taken = {id(row) for row in rows}
        wanted = [slow(row, taken) for row in rows]
        np.testing.assert_allclose(batch.adv.numpy(), wanted, atol=1e-5)
        np.testing.assert_allclose(batch.returns.numpy(), wanted + batch.v_s.numpy(), atol=1e-5)
        logits = torch.as_tensor(algorithm.policy.actor(batch.obs.obs)[0]).detach()
        legal = batch.obs.mask | ~batch.obs.mask.any(-1, keepdims=True)
        masked = torch.where(torch.as_tensor(legal), logits, torch.tensor(-1e9)).log_softmax(-1)
        expected = masked[torch.arange(len(rows)), batch.act.long()]
        np.testing.assert_allclose(batch.logp_old.numpy(), expected.numpy(), atol=1e-5)
        if t == 119:
            closed = [row for p in SEATS[0] for row in record.closed(p)]
            assert {id(row) for row in used} == {id(row) for row in closed}

    ragged(seed, on_step, steps=120, rows=5)  # a ring too small for a rollout grows
    assert len(used) == len({id(row) for row in used}) > 100
    assert min(ends) > 5, ends


def test_a_rollout_holds_every_row_that_became_whole():
    used: list[Any] = []
    readers: list[Any] = []

    def on_step(t, streams, record):
        if not readers:
            readers.append(rollouts(streams))
        if t % 13 == 12:
            used.extend(places(streams.rings[0], readers[0].take(np.ones(1)).sample_indices(0)))
        if t == 129:
            assert sorted(used) == sorted((p, row.env, row.time) for p in SEATS[0] for row in record.closed(p))

    ragged(5, on_step, steps=130, rows=4)
    assert len(used) == len(set(used)) > 100


@pytest.mark.parametrize("masks", [[], [(t, [t % 20 < 10] * 3) for t in range(0, 100, 10)]], ids=["all", "at times"])
def test_next_and_prev_are_each_players_own(masks):
    """Rows are given out that were decided while the seat learned; `next` goes on to no others."""

    def on_step(t, streams, record):
        if t != 100:
            return
        ring, buffer = streams.rings[0], replay(streams).sample([np.random.default_rng(0)], np.ones(1), 4)
        rows = buffer.sample_indices(0)
        drawable = [row for p in SEATS[0] for row in record.drawable(p, ring.oldest)]
        assert len(rows) == len(set(rows.tolist())) == len(drawable) > 0
        for cell, onward, before in zip(rows, buffer.next(rows), buffer.prev(rows), strict=True):
            row = row_at(record, *places(ring, [cell])[0])
            assert row.learnable
            goes_on = row.next is not None and row.next.closed_at is not None and row.next.learnable
            wanted = row.next if goes_on else row
            assert row_at(record, *places(ring, [onward])[0]) is wanted
            earlier = row.before if row.before is not None and row.before.time >= ring.oldest else row
            assert row_at(record, *places(ring, [before])[0]) is earlier
        ended = {(p, row.env, row.time) for p in (0, 1, 2) for row in record.closed(p, ring.oldest) if row.end}
        assert set(places(ring, np.flatnonzero(buffer.done))) == ended
        assert not (buffer.truncated & buffer.terminated).any()

    ragged(3, on_step, steps=101, masks=masks)


def test_all_rows_in_order_by_slice():
    def on_step(t, streams, record):
        if t == 60:
            buffer = replay(streams).sample([np.random.default_rng(0)], np.ones(1), 4)
            rows = buffer.sample_indices(0)
            assert np.array_equal(buffer[:].rew, buffer[rows].rew)
            assert np.array_equal(buffer[3:7].act, buffer[rows[3:7]].act)
            order = places(streams.rings[0], rows)
            assert order == sorted(order)

    ragged(1, on_step, steps=61)


def test_raw_actions_are_read_where_they_are_kept():
    taken: list[Any] = []

    def on_step(t, streams, record):
        if t == 0:
            taken.append(rollouts(streams, Needs(True, {"log_prob": Column()})))
        if t == 20:
            ring = streams.rings[0]
            ring.extras["raw"] = ring.extras["log_prob"]
            buffer = taken[0].take(np.ones(1))
            assert np.shares_memory(buffer.act, ring.extras["raw"])
            rows = buffer.sample_indices(0)
            wanted = [row_at(record, *place).log_prob for place in places(ring, rows)]
            assert np.array_equal(buffer[rows].act, wanted)
            del ring.extras["raw"]

    ragged(2, on_step, steps=21, columns={"log_prob": Column()})


def test_a_copy_of_the_view_is_the_view():
    def on_step(t, streams, record):
        if t == 10:
            buffer = replay(streams).buffer
            assert copy.deepcopy(buffer) is buffer

    ragged(0, on_step, steps=11)
