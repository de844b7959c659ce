"""The two masks: seats that learn, seats that explore, and changes in hooks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.trainer.events.callbacks import Callback
from tests.toys import Crowd, Identity
from tests.trainer.running import At, Student, changed, dqn, ppo, streams_of, trainer, weights

THREE = {"players": 3, "length": 3}


class Batches:
    """Records the arguments of every `AlgorithmLearner.update`."""

    def __init__(self, monkeypatch):
        self.seen: list = []
        update = AlgorithmLearner.update

        def noting(learner, batch, *, learn, batch_size):
            self.seen.append((batch, learn.copy()))
            return update(learner, batch, learn=learn, batch_size=batch_size)

        monkeypatch.setattr(AlgorithmLearner, "update", noting)


@pytest.fixture
def batches(monkeypatch):
    return Batches(monkeypatch)


@pytest.mark.parametrize("make", [ppo, dqn])
def test_agent_that_does_not_learn_is_unchanged(make):
    agents = make(Identity, THREE)
    start = weights(agents)
    trainer(Identity, THREE, steps_per_train=36).train(agents, [1, 1, 1], plot=False)
    warm = weights(agents)
    assert changed(start, warm) == [True, True, True]
    trainer(Identity, THREE, steps_per_train=36).train(agents, [1, 0, 1], plot=False)
    assert changed(warm, weights(agents)) == [True, False, True]  # moments and targets included


@pytest.mark.parametrize("make", [ppo, dqn])
def test_agent_that_does_not_learn_advances_only_acting_streams(make):
    """Other agents of the learner, and the agent itself later, are as in a separate learner."""
    agents = make(Identity, THREE)
    before = [agent.learner_.export(agent.row).info["rngs"] for agent in agents]
    trainer(Identity, THREE, steps_per_train=36).train(agents, [1, 0, 1], plot=False)
    after = [agent.learner_.export(agent.row).info["rngs"] for agent in agents]
    purpose = "update" if make is ppo else "sample"
    assert [b[purpose] != a[purpose] for b, a in zip(before, after, strict=True)] == [True, False, True]
    assert all(b["act"] != a["act"] for b, a in zip(before, after, strict=True))


def test_seat_without_exploration_plays_and_learns_from_the_mode(batches):
    """The stored log-probability is that of the executed action, the most likely one."""
    agents = ppo(Identity, THREE, epochs=1, learning_rate=0.0)
    trainer(Identity, THREE, steps_per_train=12).train(agents, [1, 1, 1], [1, 0, 1], plot=False)
    ((batch, _),) = batches.seen
    for k in range(3):
        observations = batch.obs[k].argmax(-1)
        modes = agents[k].act(observations)
        assert (batch.action[k] == modes).all() == (k == 1)
        out = agents[k].learner_.weights.nets["actor"](
            agents[k].backend.tensor(batch.obs[k : k + 1]), row=agents[k].row
        )[0]
        log_probs = out.log_softmax(-1)[0].detach().numpy()
        taken = np.take_along_axis(log_probs, batch.action[k][:, None], 1)[:, 0]
        np.testing.assert_allclose(batch.extras["log_prob"][k], taken, atol=1e-6)
        assert (log_probs.argmax(-1) == modes).all()


def test_exploration_mask_of_one_agent_in_two_seats():
    agent = mt.DQN(Identity()._space, Identity()._space, seed=0, epsilon=1.0)
    modes = agent.act(np.arange(3))
    student = Student(lambda row: 0)
    env = {"players": 3, "length": 3}
    seen = []

    class Watch(Callback):
        def on_train_start(self, moment):
            self.ring = moment.trainer.run.context.streams.rings[0]

        def on_step(self, moment):
            if self.ring.now >= 1:
                t = (self.ring.now - 1) % self.ring.capacity
                seen.append((self.ring.obs["vector"][:2, t].argmax(-1), self.ring.action[:2, t].copy()))

    trainer(Identity, env, steps_per_train=150, callbacks=[Watch()]).train(
        [agent, agent, student], [0, 0, 1], [1, 0, 0], plot=False
    )
    agrees = [np.concatenate([(modes[o[seat]] == a[seat]) for o, a in seen]) for seat in (0, 1)]
    assert agrees[1].all()
    assert 0.1 < agrees[0].mean() < 0.6  # uniform over three


def test_rows_of_a_seat_that_does_not_learn_are_not_read(batches):
    """One agent in the seats of both reds; only red_1 learns: every row it learns from is red_1's (place 1)."""
    agents = dqn(Crowd, share=True)
    assert agents[0] is agents[2]
    for mask, places in (([0, 1, 1], {1.0}), ([1, 1, 1], {0.0, 1.0})):
        batches.seen.clear()
        trainer(Crowd, steps_per_train=60).train(agents, mask, plot=False)
        read = [batch.obs[0, :, 1] for batch, _ in batches.seen if batch.obs.shape[-1] == 2]  # blue sees three numbers
        assert set(np.concatenate(read)) == places


def test_shared_memory_reads_all_seats_of_equal_spaces(batches):
    """Only red_0 learns, from the rows of both reds: half of the early rows are red_1's. Blue has other spaces."""
    agents = dqn(Crowd)
    for shared, places in ((False, {0.0}), (True, {0.0, 1.0})):
        batches.seen.clear()
        trainer(Crowd, steps_per_train=60, shared_memory=shared, batch_size=32).train(agents, [1, 0, 0], plot=False)
        assert batches.seen
        for batch, learn in batches.seen:
            assert learn.tolist() == [True, False]
            assert batch.obs.shape[0] == 2
        rows = np.concatenate([batch.obs[0, :, 1] for batch, _ in batches.seen])
        assert set(rows) == places
    assert 0.25 < rows.mean() < 0.45  # red_1 plays 2 of the 6 steps of both reds in an episode


def test_on_policy_learners_cannot_share_memory():
    with pytest.raises(
        ConfigError, match=r"shared_memory=True, but the agent of player_0 and player_1 learns on-policy"
    ):
        trainer(shared_memory=True).train(ppo(), [1, 1], plot=False)
    frozen = [*dqn()[:1], mt.FrozenAgent(ppo()[1])]
    assert trainer(shared_memory=True, steps_per_train=3).train(frozen, [1, 0], plot=False)["num_collected_steps"] == 3


# Changing masks in hooks ----------------------------------------------------------------------------------------------


def test_mask_set_in_a_hook_applies_from_the_next_batch_step(batches):
    """Set in batch step 4, when the first update is due: this update has the old mask, the next one the new mask."""
    agents, states = ppo(), []

    def switch(moment):
        moment.trainer.learning_mask = [0, 1]
        assert moment.trainer.learning_mask == (False, True)
        states.append(weights(agents))

    class Watch(Callback):
        def on_update_end(self, moment):
            states.append(weights(agents))

    trainer(steps_per_train=24, callbacks=[At(4, switch), Watch()]).train(agents, [1, 1], plot=False)
    assert [learn.tolist() for _, learn in batches.seen] == [[True, True], [False, True]]
    assert [changed(a, b) for a, b in pairwise(states)] == [[True, True], [False, True]]


def test_exploration_mask_set_in_a_hook_applies_from_the_next_decision():
    agents = dqn(epsilon=1.0, learning_rate=0.0)
    modes = agents[0].act(np.arange(3))
    agreed = []

    class Watch(Callback):
        def on_step(self, moment):
            ring = moment.trainer.run.context.streams.rings[0]
            last = (ring.now - 1) % ring.capacity
            agreed.append((modes[ring.obs["vector"][0, last].argmax(-1)] == ring.action[0, last]).all())

    def off(moment):
        moment.trainer.exploration_mask = [0, 1]

    trainer(num_train_envs=8, steps_per_train=160, callbacks=[Watch(), At(10, off)]).train(agents, [1, 1], plot=False)
    assert not any(agreed[:10])  # eight uniform choices that all happen to be the mode: 1 in 6561 each
    assert all(agreed[10:])


def test_only_the_rollout_of_a_seat_that_stops_learning_is_dropped(batches):
    """A rollout is 4 batch steps of 3 environments. player_0 is off during batch steps 3 to 5."""
    agents = ppo()

    def mask(*values):
        return lambda moment: setattr(moment.trainer, "learning_mask", list(values))

    trainer(steps_per_train=24, callbacks=[At(2, mask(0, 1)), At(5, mask(1, 1))]).train(agents, [1, 1], plot=False)
    (first, learn_first), (second, learn_second) = batches.seen
    assert learn_first.tolist() == [False, True]
    assert first.weight.sum(1).tolist() == [0, 12]
    assert learn_second.tolist() == [True, True]
    assert second.weight.sum(1).tolist() == [9, 12]  # player_0: batch steps 6, 7 and 8 only


def test_dropped_rollout_of_one_of_two_seats_of_an_agent(batches):
    shared = ppo(share=True)
    assert shared[0] is shared[1]

    def off(moment):
        moment.trainer.learning_mask = [0, 1]

    trainer(steps_per_train=24, callbacks=[At(2, off)]).train(shared, [1, 1], plot=False)
    assert [batch.weight.sum(1).tolist() for batch, _ in batches.seen] == [[12], [12]]


def test_learner_that_resumes_learning_waits_for_a_full_rollout(batches):
    """No seat learns in batch steps 3 to 6: the first update comes 4 batch steps later, with 12 rows per agent."""
    agents, run_at = ppo(), []

    class Watch(Callback):
        def on_update_end(self, moment):
            run_at.append(moment.env_steps)

    student = Student(lambda row: 0)
    masks = [At(2, lambda m: setattr(m.trainer, "learning_mask", [0, 0, 1])),
             At(6, lambda m: setattr(m.trainer, "learning_mask", [1, 1, 1]))]  # fmt: skip
    run = trainer(Identity, THREE, steps_per_train=33, callbacks=[*masks, Watch()])
    run.train([*agents, student], [1, 1, 1], plot=False)
    assert [batch.weight.sum(1).tolist() for batch, _ in batches.seen] == [[12, 12]]
    assert 10 * 3 in run_at


def test_off_policy_learner_makes_no_updates_for_steps_with_mask_0(batches):
    agents = dqn(update_per_step=0.5)
    student = Student(lambda row: 0)
    masks = [At(2, lambda m: setattr(m.trainer, "learning_mask", [0, 0, 1])),
             At(22, lambda m: setattr(m.trainer, "learning_mask", [1, 1, 1]))]  # fmt: skip
    trainer(Identity, THREE, steps_per_train=78, callbacks=masks).train([*agents, student], [1, 1, 1], plot=False)
    assert len(batches.seen) == 6  # 4 batch steps of 3 env steps at 0.5


def masks_at(masks):
    """Callbacks that set a learning mask after some batch steps."""
    return [
        At(step, lambda moment, mask=mask: setattr(moment.trainer, "learning_mask", mask))
        for step, mask in masks.items()
    ]


@pytest.mark.parametrize("shared", [False, True], ids=["own memory", "shared memory"])
@pytest.mark.parametrize("line_up", [dqn, lambda **own: dqn(share=True, **own)], ids=["two agents", "one agent"])
def test_off_policy_agents_never_read_decisions_with_mask_0(batches, line_up, shared):
    """Batch step t lies in slot t of the ring. Player 0 does not learn in 0 to 9 and 20 to 29, player 1 in 10 to 19."""
    masks = {10: [1, 0], 20: [0, 1], 30: [1, 1]}
    run = trainer(
        num_train_envs=2, update_freq=2, steps_per_train=80, batch_size=50, callbacks=masks_at(masks),
        shared_memory=shared,
    )  # fmt: skip
    run.train(line_up(n_step=1, update_per_step=1.0), [0, 1], plot=False)
    off = {0: {*range(10), *range(20, 30)}, 1: {*range(10, 20)}}
    seen, streams = set(), streams_of(run)
    assert streams is not None
    for batch, learn in batches.seen:
        player, slot, _env = np.unravel_index(batch.cells[learn].reshape(-1), streams.rings[0].axes)
        seen |= set(zip(player.tolist(), slot.tolist(), strict=True))
    allowed = {(p, t) for p in range(2) for t in range(40) if shared or t not in off[p]}
    assert seen == allowed


@pytest.mark.parametrize("first", [[0, 1], [1, 1]])
def test_learning_starts_counts_env_steps_with_mask_1(batches, first):
    """Player 0 learns from env step 30 on, or from the start: its first update comes 12 env steps later."""
    masks = masks_at({10: [1, 1]})
    run = trainer(steps_per_train=60, update_freq=3, callbacks=masks)
    run.train(dqn(learning_starts=12, update_per_step=1 / 3), first, plot=False)
    assert len(batches.seen) == 17  # after env steps 12 to 60
    assert sum(learn[0] for _, learn in batches.seen) == (17 if first[0] else 60 // 3 - 42 // 3 + 1)
    assert all(learn[1] for _, learn in batches.seen)


@pytest.mark.parametrize("make", [ppo, dqn])
def test_players_learn_in_turn(make):
    """After every second update the other seat learns: weights change only while their seat learns."""
    agents = make()
    states = [weights(agents)]

    class Alternate(Callback):
        def on_update_end(self, moment):
            if moment.env_steps % 12 == 0:
                states.append(weights(agents))
                moment.trainer.learning_mask = [len(states) % 2, 1 - len(states) % 2]

    trainer(update_freq=6, steps_per_train=48, callbacks=[Alternate()]).train(agents, [1, 0], plot=False)
    moves = [changed(a, b) for a, b in pairwise(states)]
    assert moves == [[True, False], [False, True], [True, False], [False, True]]


# Fixed opponents and team rewards -------------------------------------------------------------------------------------


def test_frozen_agent_keeps_its_weights_while_the_original_learns():
    agents = ppo()
    frozen = mt.FrozenAgent(agents[0])
    inner = frozen.inner
    before = weights([inner, agents[0]])
    trainer(steps_per_train=36).train([agents[0], frozen], [1, 0], plot=False)
    assert changed(before, weights([inner, agents[0]])) == [False, True]


def test_a_frozen_agent_never_explores():
    learned, fixed = dqn(epsilon=1.0, learning_rate=0.0)
    frozen = mt.FrozenAgent(fixed)
    modes = fixed.act(np.arange(3))
    agrees = []

    class Watch(Callback):
        def on_step(self, moment):
            ring = moment.trainer.run.context.streams.rings[0]
            t = (ring.now - 1) % ring.capacity
            agrees.append(modes[ring.obs["vector"][1, t].argmax(-1)] == ring.action[1, t])

    trainer(steps_per_train=60, callbacks=[Watch()]).train([learned, frozen], [1, 0], [1, 1], plot=False)
    assert np.concatenate(agrees).all()


@pytest.mark.parametrize(
    ("team_reward", "joint"),
    [
        ("mean", lambda r: r.mean(0)),
        ("sum", lambda r: r.sum(0)),
        (lambda r: 2 * r.max() - 1, lambda r: 2 * r.max(0) - 1),
    ],
    ids=["mean", "sum", "function"],
)
def test_team_reward_changes_only_the_learned_rewards(team_reward, joint, batches):
    own = trainer(steps_per_train=12).train(ppo(learning_rate=0.0), [1, 1], plot=False)
    ((raw, _),) = batches.seen
    batches.seen.clear()
    team = trainer(steps_per_train=12, team_reward=team_reward).train(ppo(learning_rate=0.0), [1, 1], plot=False)
    ((batch, _),) = batches.seen
    assert isinstance(batch, Rollout)
    np.testing.assert_allclose(batch.reward, np.broadcast_to(joint(raw.reward), raw.reward.shape), atol=1e-6)
    assert (raw.reward[0] != raw.reward[1]).any()
    returns = [result["episodes"].filter(like="return").to_numpy().tolist() for result in (own, team)]
    assert returns[0] == returns[1]
    assert own["reward_metric_stats"] == team["reward_metric_stats"]


@pytest.mark.parametrize("value", ["maen", 3, ["mean"]])
def test_invalid_team_rewards(value):
    with pytest.raises(ConfigError, match="team_reward must be None"):
        trainer(team_reward=value)


def test_team_reward_must_return_a_number():
    with pytest.raises(mt.EnvError, match="team_reward must return one finite number"):
        trainer(team_reward=lambda r: r.sum() if r.sum() == 0 else np.nan).train(ppo(), [1, 1], plot=False)


# Each transition once -------------------------------------------------------------------------------------------------


def test_one_agent_in_all_seats_learns_each_transition_once_on_policy(batches):
    """24 batch steps of 3 environments and 2 seats: 144 decisions, all complete."""
    shared = ppo(share=True)
    trainer(steps_per_train=72).train(shared, [1, 1], plot=False)
    assert sum(batch.weight.sum() for batch, _ in batches.seen) == 144
    assert all(batch.obs.shape[0] == 1 for batch, _ in batches.seen)
    student = Student(lambda row: int(row.argmax()) % 2)
    trainer(steps_per_train=72).train([student, student], [1, 1], plot=False)
    assert sum(len(batch.reward) for batch in student.seen) == 144
    assert student.told == [12] * 6


def test_one_agent_in_all_seats_replays_each_transition_once_off_policy():
    shared = dqn(share=True)
    run = trainer(steps_per_train=72)
    run.train(shared, [1, 1], plot=False)
    learner, streams = shared[0].learner_, streams_of(run)
    for shared_memory in ([[0, 1]], [[1, 0]]):
        assert learner.reader(streams, shared_memory).size().tolist() == [144]
