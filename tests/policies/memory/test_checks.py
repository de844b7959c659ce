"""What a file may say of a ring: every time, entry and count that something follows into memory is checked before."""

import re

import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.policies.memory import Storage, Streams
from marltrain.policies.memory.needs import Column
from marltrain.storage.state import State
from tests.policies.memory.worlds import World, one_group, rollouts, seeing

STEPS, ENVS, ROWS = 20, 3, 7
STORAGE = {0: Storage(ROWS, {"log_prob": Column()})}


def saved(spec=one_group):
    """Streams that have wrapped around, and what they keep."""
    world = World(spec(), ENVS, 5)
    streams = Streams(world.spec, ENVS, STORAGE)
    for t in range(STEPS):
        if t:
            streams.record_actions(0, *world.decide(0))
        streams.record_step(world.next_step(first=t == 0))
    return streams, streams.state()


def refused(state, message, spec=one_group):
    """Restore, and expect a SaveError that says this."""
    with pytest.raises(SaveError, match=re.escape(message)):
        Streams(spec(), ENVS, STORAGE).restore(State(state.info, state.arrays, "memory"))


def test_what_was_saved_is_taken_back():
    for spec in (one_group, seeing):
        streams, state = saved(spec)
        again = Streams(streams.spec, ENVS, STORAGE)
        again.restore(state)
        for name, array in again.state().arrays.items():
            np.testing.assert_array_equal(array, state.arrays[name], err_msg=name)


@pytest.mark.parametrize("wrong", [-(10**9), -67, -(2**63), STEPS, 2**62])
def test_a_pointer_that_leads_nowhere_is_refused(wrong):
    _, state = saved()
    pointers = state.arrays["0/rows/next"]
    place = tuple(np.argwhere(pointers >= 0)[0].tolist())
    pointers[place] = wrong
    refused(state, f"memory/0/rows/next{list(place)} must be from ")


def test_a_pointer_into_the_past_or_from_a_row_that_nobody_decided_is_refused():
    _, state = saved()
    pointers, acted = state.arrays["0/rows/next"], state.arrays["0/rows/acted"]
    place = tuple(np.argwhere(pointers >= 0)[-1].tolist())
    after = pointers[place]
    pointers[place] = STEPS - pointers.shape[1] + place[1]  # its own batch step: a loop
    refused(state, f"memory/0/rows/next{list(place)} must be from {pointers[place] + 1} to {STEPS - 1}")
    pointers[place], acted[place] = after, False
    refused(state, f"memory/0/rows/next{list(place)} must be -1, where no decision was made, got {after}")


@pytest.mark.parametrize("newest", [False, True])
def test_a_pointer_to_a_row_in_which_the_player_does_not_decide_is_refused(newest):
    """The newest row counts as decided where the player has the turn."""
    _, state = saved()
    pointers, decides = state.arrays["0/rows/next"], state.arrays["0/rows/acted"].copy()
    decides[:, -1] = state.arrays["0/turn"]
    steps = [decides.shape[1] - 1] if newest else range(decides.shape[1] - 1)
    player, slot, env, to = next(
        (p, t, e, to)
        for p, t, e in np.argwhere(pointers >= 0).tolist()
        for to in steps
        if to > t and not decides[p, to, e]
    )
    pointers[player, slot, env] = after = state.info["0"]["oldest"] + to
    where = [player, slot, env]
    refused(state, f"memory/0/rows/next{where} must be a batch step at which the player decides, got {after}")


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("wrong", [-1, 3, 100, -(2**63)])
def test_an_action_that_there_is_not_is_refused(wrong, decided):
    """Also in rows that nobody decided: a team reads them with those of the players that did."""
    _, state = saved()
    place = tuple(np.argwhere(state.arrays["0/rows/acted"] == decided)[0].tolist())
    state.arrays["0/rows/action"][place] = wrong
    refused(state, f"memory/0/rows/action{list(place)} must be from 0 to 2, got {wrong}")


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize(("name", "wrong"), [("reward", np.nan), ("obs/vector", np.inf), ("extras/log_prob", np.nan)])
def test_numbers_that_are_none_are_refused(name, wrong, decided):
    """Observations of players that do not decide are not read, and may be anything."""
    streams, state = saved()
    place = tuple(np.argwhere(state.arrays["0/rows/acted"] == decided)[0].tolist())
    state.arrays[f"0/rows/{name}"][place] = wrong
    if name == "obs/vector" and not decided:
        Streams(streams.spec, ENVS, STORAGE).restore(state)
        return
    refused(state, f"memory/0/rows/{name}{[*place, *([0] if name == 'obs/vector' else [])]} must be a finite number")


def test_rows_that_nobody_decided_are_saved_without_what_agents_said_there():
    """An agent of the user's own may return -1 or NaN for a player that has no turn: the run is saved, and resumed."""
    world = World(one_group(), ENVS, 5)
    streams = Streams(world.spec, ENVS, STORAGE)
    for t in range(STEPS):
        if t:
            action, extras = world.decide(0)
            turn = streams.rings[0].turn
            streams.record_actions(
                0, np.where(turn, action, -1), {n: np.where(turn, x, np.nan) for n, x in extras.items()}
            )
        streams.record_step(world.next_step(first=t == 0))
    state, (_, as_usual) = streams.state(), saved()
    acted = state.arrays["0/rows/acted"]
    for name in ("action", "extras/log_prob"):
        assert (state.arrays[f"0/rows/{name}"][~acted] == 0).all() and (~acted[:, :-1]).sum() > 9
        assert (state.arrays[f"0/rows/{name}"] == as_usual.arrays[f"0/rows/{name}"]).all()
    Streams(world.spec, ENVS, STORAGE).restore(State(state.info, state.arrays, "memory"))
    assert (streams.rings[0].action == -1).any()  # the run goes on with what the agents said


@pytest.mark.parametrize("wrong", [-2, -(10**9), STEPS - 1, 100, 2**62, STEPS - 1 - ROWS - 1])
def test_an_open_row_that_is_not_there_is_refused(wrong):
    _, state = saved()
    place = tuple(np.argwhere(state.arrays["0/open"] >= 0)[0].tolist())
    state.arrays["0/open"][place] = wrong
    refused(state, f"memory/0/open{list(place)} must be from ")


def test_an_open_row_that_is_whole_or_nobodys_is_refused():
    _, state = saved()
    pointers, oldest = state.arrays["0/rows/next"], state.info["0"]["oldest"]
    player, slot, env = (int(i) for i in np.argwhere(pointers >= 0)[0])
    state.arrays["0/open"][player, env] = oldest + slot
    refused(state, f"memory/0/open[{player}, {env}] must be a row that waits for what follows, got {oldest + slot}")


@pytest.mark.parametrize("wrong", [0, -1, 10**6, 2**62])
def test_a_count_of_whole_rows_is_counted_again(wrong):
    """With more rows than there are, sampling would look for them for ever."""
    _, state = saved()
    state.arrays["0/whole"][1] = wrong
    refused(state, "memory/0/whole must be the rows that can be drawn, [")


@pytest.mark.parametrize("wrong", [-1, 64, 10**9, -(2**63), "twice", "used", "lost"])
def test_entries_of_ends_are_unused_or_what_one_row_leads_to(wrong):
    _, state = saved()
    unused, pointers = state.arrays["0/ends/unused"], state.arrays["0/rows/next"]
    if wrong == "lost":
        state.arrays["0/ends/unused"] = unused[1:]
    else:
        used = -2 - int(pointers[pointers < -1][0])
        unused[0] = {"twice": unused[1], "used": used}.get(wrong, wrong) if isinstance(wrong, str) else wrong
    refused(state, "memory/0/ends/unused")


@pytest.mark.parametrize(("name", "low", "high"), [("0/ends/time", -1, STEPS), ("0/rows/previous", -2, STEPS)])
def test_times_that_there_are_not_are_refused(name, low, high):
    for wrong in (low, high):
        _, state = saved(seeing)
        state.arrays[name].flat[3] = wrong
        refused(state, f"memory/{name}[", seeing)


def test_a_frame_that_was_overwritten_is_not_there():
    _, state = saved(seeing)
    rows = {name: state.arrays[f"0/rows/{name}"] for name in ("acted", "complete", "previous")}
    place = tuple(np.argwhere(rows["acted"] & rows["complete"])[0].tolist())
    rows["previous"][place] = 0
    refused(state, f"memory/0/rows/previous{list(place)} must be from {state.info['0']['oldest']} to ", seeing)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("capacity", 2**40, "memory/0: the saved memory holds 1099511627776 batch steps"),
        ("capacity", 10, "memory/0: the saved memory holds 10 batch steps, 8 of them in use; this one holds 8"),
        ("capacity", 16, "8 of them in use; this one holds 8, and doubles when it is full"),
        ("now", -1, "memory/0/now must be from 0 to 9007199254740992, got -1"),
        ("now", 2**62, "memory/0/now must be from 0 to"),
        ("oldest", 0, "memory/0: a memory of 8 batch steps cannot hold those from 0 to 19"),
        ("oldest", True, "memory/0/oldest must be of type int, got True"),
        ("oldest", STEPS, "memory/0: a memory of 8 batch steps cannot hold those from 20 to 19"),
    ],
)
def test_a_span_that_cannot_be_is_refused(monkeypatch, name, value, message):
    monkeypatch.setattr("marltrain.policies.memory.checks.check_memory", lambda what, size: None)
    _, state = saved()
    state.info["0"][name] = value
    refused(state, message)


@pytest.mark.parametrize("name", ["0/open", "0/turn", "0/whole", "0/rows/next", "0/ends/time", "0/rows/obs/vector"])
def test_another_dtype_or_shape_and_a_missing_array_are_refused(name):
    _, state = saved()
    good = state.arrays[name]
    state.arrays[name] = good.astype(np.float16)
    refused(state, f"memory/{name} must be {good.dtype} of shape {good.shape}, got float16")
    state.arrays[name] = good[None]
    refused(state, f"memory/{name} must be ")
    del state.arrays[name]
    refused(state, f"memory/{name} is missing")


def test_the_newest_row_is_not_decided():
    _, state = saved()
    state.arrays["0/rows/acted"][1, -1, 2] = True
    refused(state, "memory/0/rows/acted: the newest row, of batch step 19, is not decided yet")


def test_a_memory_of_another_moment_than_the_environments_is_refused():
    for spec in (one_group, seeing):
        world, streams = World(spec(), ENVS, 5), Streams(spec(), ENVS, STORAGE)
        step = world.next_step(first=True)
        streams.record_step(step)
        streams.check_shown(step, np.arange(ENVS))
        player, env = np.argwhere(step.turn[0])[0]
        ring = streams.rings[0]
        ring.obs["vector"][player, 0, env, 0] += 1
        with pytest.raises(
            SaveError, match=f"shows player '{ring.names[player]}' another 'vector' than environment {env}"
        ):
            streams.check_shown(step, np.arange(ENVS))
        streams.check_shown(step, np.setdiff1d(np.arange(ENVS), [env]))
        step.turn[0][player, env] = False
        with pytest.raises(SaveError, match="other players have the turn"):
            streams.check_shown(step, np.arange(ENVS))


@pytest.mark.parametrize(("what", "wrong"), [("taken", STEPS), ("taken", -2), ("since", STEPS), ("since", -1)])
def test_a_reader_has_taken_what_there_was(what, wrong):
    streams, _ = saved()
    state = State.joined(reader=rollouts(streams, [[0, 1]]).state())
    if what == "taken":
        state.info["reader"]["taken"] = wrong
    else:
        state.arrays["reader/since"][1] = wrong
    with pytest.raises(SaveError, match=rf"reader/{what}(\[1\])? must be from -?\d to {STEPS - 1}, got {wrong}"):
        rollouts(streams, [[0, 1]]).restore(state.part("reader"))
