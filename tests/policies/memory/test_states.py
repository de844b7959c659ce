"""Global states of rows and of the moments after them, in random worlds: against the numbers of the moments."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.spec import EnvSpec
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Needs, StateNeed
from marltrain.policies.memory.states import GlobalStates, state_size
from tests.policies.memory.worlds import Record, Script, World, drive, one_group, seeing, two_groups

ENVS = 3


class Numbered(World):
    """A world whose state is [t, e] at batch step t, and [-t, -e] at the end of an episode.

    moments: the number that a player observes -> the state of that moment.
    """

    def __init__(self, spec, num_envs, seed, **more):
        own = EnvSpec.of(spec.name, spec.players, state_shape=(2,))
        super().__init__(own, num_envs, seed, **more)
        self.time, self.moments, self._last = -1, {}, []

    def _see(self, p, e, last=False):
        seen = super()._see(p, e, last)
        self.moments[self.count] = (self.time, e)
        if last:
            self._last.append((self.count, e))
        return seen

    def next_step(self, first=False, anew=()):
        self.time += 1
        self._last.clear()
        step = super().next_step(first, anew)
        envs = np.arange(self.num_envs)
        step.state[:], step.final_state[:] = np.stack([np.full(self.num_envs, self.time), envs], 1), np.nan
        step.final_state[step.ended] = -step.state[step.ended]
        for count, e in self._last:
            if step.ended[e]:
                self.moments[count] = (-self.time, -e)
        return step


def assert_of_moments(world, seen, states, where=True):
    """Hold states [K, B, 2] to the numbers that the players see in the same moments."""
    for observed, state in zip(seen[..., 0][where].ravel(), states[where].reshape(-1, 2), strict=True):
        assert tuple(state) == world.moments[int(observed)]


def needs(kind="state", size=2, **more):
    return Needs(state=StateNeed(kind, size), **more)


def recorded(world, rows, seats):
    """Streams that store states, with readers of rollouts and of transitions over up to 3 steps."""
    streams = Streams(world.spec, ENVS, {g: Storage(rows, states=("state",)) for g in range(len(world.spec.groups))})
    rollouts = streams.reader(seats, needs(on_policy=True))
    return streams, rollouts, streams.reader(seats, needs(on_policy=False, n_step=3))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("spec", "seats"), [(one_group(masked=False), [[0, 2], [1]]), (two_groups(), [[0], [2]])])
def test_states_are_those_of_the_rows_moments(spec, seats, seed):
    """Turns, deaths, ends of both kinds, episodes that are given up, and a ring that grows and wraps."""
    world = Numbered(spec, ENVS, seed, dense=seed == 3)
    streams, rollouts, uniform = recorded(world, 7, seats)
    rngs = [np.random.default_rng(k) for k in range(2)]
    taken = 0

    def on_step(t):
        nonlocal taken
        if t % 11 == 10:
            rollout = rollouts.take(np.full(2, 0.5))
            assert_of_moments(world, rollout.obs, rollout.state, rollout.weight > 0)
            assert_of_moments(world, rollout.boot_obs, rollout.boot_state)
            batch = uniform.sample(rngs, np.full(2, 0.5), 40)
            assert_of_moments(world, batch.obs, batch.state)
            assert_of_moments(world, batch.next_obs, batch.next_state)
            taken += 1

    drive(world, streams, Record(world.spec, ENVS), on_step, 150, resets=(60,), cuts=((33, [1]), (90, [0, 2])))
    assert taken == 13
    (states,) = streams.states.values()
    assert states.capacity == max(ring.capacity for ring in streams.rings.values()) > 8
    assert states.ends.used <= states.capacity * ENVS  # entries of overwritten states are free again


@pytest.mark.parametrize("kind", ["state", "observations"])
def test_restored_states_go_on_as_the_first_ones(kind):
    spec = one_group(masked=False)
    world = Numbered(spec, ENVS, 5) if kind == "state" else World(spec, ENVS, 5)
    size = state_size(world.spec, kind)
    first, second = (Streams(world.spec, ENVS, {0: Storage(7, states=(kind,))}) for _ in range(2))

    rng = np.random.default_rng(0)
    for t in range(90):
        step = world.next_step(first=t == 0)
        first.record_step(step)
        if t == 40:
            second.restore(copy.deepcopy(first.state()))
        elif t > 40:
            second.record_step(step)
        action = rng.integers(0, 2, (3, ENVS))
        first.record_actions(0, action, {})
        if t >= 40:
            second.record_actions(0, action, {})
    one, other = (each.reader([[0, 1, 2]], needs(kind, size, on_policy=False)) for each in (first, second))
    batches = [each.sample([np.random.default_rng(1)], np.ones(1), 200) for each in (one, other)]
    for name in ("obs", "state", "next_state"):
        np.testing.assert_array_equal(getattr(batches[0], name), getattr(batches[1], name))
    kept = [each.states[kind].state().arrays for each in (first, second)]
    assert all((kept[0][name] == kept[1][name]).all() for name in ("values", "final"))


def test_saved_states_that_do_not_fit_the_rows_are_refused():
    world = Numbered(one_group(masked=False), ENVS, 1)
    streams, _, _ = recorded(world, 4, [[0], [1]])
    drive(world, streams, Record(world.spec, ENVS), lambda t: None, 20)
    streams.record_step(world.next_step())
    right = streams.state()
    changes = {
        "do not fit": lambda info, _: info.update({"states/state/now": 3}) or info["states/state"].update(now=3),
        "final": lambda _, arrays: arrays["states/state/final"].fill(-70),
        "finite": lambda _, arrays: arrays["states/state/values"].fill(np.nan),
    }
    for data, change in changes.items():
        wrong = copy.deepcopy(right)
        change(wrong.info, wrong.arrays)
        with pytest.raises(SaveError, match=data):
            recorded(world, 4, [[0], [1]])[0].restore(wrong)


def test_a_state_of_images_is_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"'a' hold an image\. Give the environment a method state\(\)"):
        GlobalStates(seeing(), 1, 4, "observations")
    with pytest.raises(ConfigError, match="do not fit into memory"):
        Streams(one_group(), 1, {0: Storage(10**9, states=("state",))})


def test_states_that_are_the_same_are_stored_once():
    streams = Streams(one_group(), 2, {0: Storage(4, states=("observations", "state"))})
    (states,) = streams.states.values()
    assert set(streams.rings[0].states.values()) == {states}
    without = Streams(one_group(), 2, {0: Storage(4)})
    assert streams.full_size - without.full_size == 5 * (states.values[0, 0].nbytes + states.final[0, 0].nbytes)


def test_a_state_to_which_a_part_that_has_ended_leads_survives_a_restart():
    """Player a is truncated at batch step 1, b goes on; then the environment begins anew in the same batch step."""
    script = Script(EnvSpec.of("world", one_group("ab", masked=False).players, state_shape=(1,)))
    streams = Streams(script.spec, 1, {0: Storage(4, states=("state",))})
    reader = streams.reader([[0]], needs(size=1, on_policy=True))
    for t, ends in ((0, None), (1, {0: ("truncated", 5)})):
        step = script.step
        step.turn[0][:], step.obs[0][:], step.truncated[:], step.state[:] = True, t, False, t + 10
        if ends:
            step.turn[0][0], step.truncated[0] = False, True
        streams.record_step(step)
        if t == 0:
            streams.record_actions(0, np.zeros((2, 1), np.int64), {})
    step.truncated[:], step.turn[0][:], step.state[:] = False, True, 99
    streams.restart(step, np.array([0]))
    rollout = reader.take(np.ones(1))
    assert rollout.state[0].tolist() == [[10]] and rollout.boot_state[0].tolist() == [[11]]


def test_steps_without_a_state_are_refused():
    spec = EnvSpec.of("world", one_group().players, state_shape=(2,))
    states = GlobalStates(spec, 1, 4, "state")
    with pytest.raises(ConfigError, match="with_state=True"):
        states.record_step(World(one_group(), 1, 0).next_step(first=True), 4)
