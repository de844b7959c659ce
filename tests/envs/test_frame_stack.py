"""Stacked frames, ours and Gymnasium's."""

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, RecordEpisodeStatistics, TransformObservation

from marltrain.core.errors import ConfigError
from marltrain.envs import DummyVectorEnv, FrameStack, SubprocVectorEnv, check_env, make_vector, probe, resolve
from tests.envs.driving import act, column, random_run, run_seed, same
from tests.gymnasium_toys import Film
from tests.toys import Crowd, Motley, Relay


def film(**rest):
    return FrameStackObservation(Film(), 4, **rest)


@pytest.mark.parametrize("env", [film, lambda: RecordEpisodeStatistics(film()), FrameStack(Film, 4)])
def test_a_stack_of_pictures_is_known_as_one(env):
    spec = probe(env)
    layout = spec.players[0].layout
    assert layout.stack == 4 and layout.shapes == {"image": ((4, 84, 84), np.uint8)}
    assert layout.images[0].stack == 4

    vector = DummyVectorEnv(env, 1)
    step = vector.reset(0)
    seen = []
    for _ in range(7):
        (obs,) = step.obs
        assert isinstance(obs, np.ndarray)
        seen.append(obs[0, 0, :, 3, 5].tolist())
        step = vector.step(act(spec))
    assert seen == [[1, 1, 1, 1], [1, 1, 1, 2], [1, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    "env",
    [
        Film,
        lambda: film(padding_type="zero"),
        lambda: TransformObservation(film(), lambda seen: 255 - seen, film().observation_space),
    ],
)
def test_what_is_no_plain_stack_is_not_taken_for_one(env):
    assert probe(env).players[0].layout.stack == 1


def test_parallel_players_each_have_their_own_frames():
    vector = make_vector(FrameStack(Crowd, 2), {"length": 3})
    spec, step = vector.spec, vector.reset(run_seed([0, 1]))
    assert spec.groups[0].layout.shapes == {"vector": ((4,), np.float32)}
    assert column(spec, step)["obs"] == {"red_0": [0, 0, 0, 0], "blue": [0, 2, 0, 0, 2, 0], "red_1": [0, 1, 0, 1]}
    step = vector.step(act(spec, red_0=1))
    assert column(spec, step)["obs"] == {"red_0": [0, 0, 1, 0], "blue": [0, 2, 0, 1, 2, 1], "red_1": [0, 1, 1, 1]}
    step = vector.step(act(spec))
    assert column(spec, step)["final_obs"] == {"red_1": [1, 1, 2, 1]}
    step = vector.step(act(spec))
    assert column(spec, step)["final_obs"]["red_0"] == [2, 0, 3, 0]
    assert column(spec, step)["obs"] == {"red_0": [0, 0, 0, 0], "red_1": [0, 1, 0, 1]}


def test_turn_based_players_stack_the_frames_of_their_own_turns():
    """ann sees t = 0, 3, 6 and at last 8; bob, who dies waiting, 1, 4 and at last 6. Masks are not stacked."""
    vector = make_vector(FrameStack(Relay, 2))
    spec, step = vector.spec, vector.reset(run_seed([0]))
    assert spec.players[0].masked and spec.groups[0].layout.shapes == {"vector": ((6,), np.float32)}
    times: list[tuple] = []
    legal: list[list[int]] = []
    last: dict[str, list[float]] = {}
    while True:
        said = column(spec, step)
        for name, frames in said.get("final_obs", {}).items():
            last[name] = frames[::3]
        if step.ended[0]:
            break
        ((mover, frames),) = said["obs"].items()
        times.append((mover, *frames[::3]))
        legal += said["legal"].values()
        step = vector.step(act(spec, **{mover: 0}))
    assert times == [
        ("ann", 0, 0), ("bob", 1, 1), ("cat", 2, 2), ("ann", 0, 3), ("bob", 1, 4), ("cat", 2, 5),
        ("ann", 3, 6), ("cat", 5, 7),
    ]  # fmt: skip
    assert last == {"bob": [4, 6], "ann": [6, 8], "cat": [7, 8]}
    assert legal == [[0, 1, 2], [0, 1]] * 4


@pytest.mark.parametrize("env", [Crowd, Relay, Motley, Film])
def test_stacked_environments_keep_the_contract(env):
    assert check_env(FrameStack(env, 3)).ok


def test_wrong_stacks_are_refused():
    with pytest.raises(ConfigError, match="num_frames must be at least 2, got 1"):
        FrameStack(Crowd, 1)
    with pytest.raises(ConfigError, match="takes no argument 'lenght'"):
        resolve(FrameStack(Crowd, 2), {"lenght": 3})


def pong():
    gymnasium.register_envs(ale_py)
    return FrameStackObservation(AtariPreprocessing(gymnasium.make("ALE/Pong-v5", frameskip=1)), 4)


def test_gymnasiums_atari_preprocessing_is_usable_as_it_is():
    spec = probe(pong)
    assert spec.players[0].layout.shapes == {"image": ((4, 84, 84), np.uint8)} and spec.players[0].layout.stack == 4
    with DummyVectorEnv(pong, 2) as dummy, SubprocVectorEnv(pong, 2, num_workers=2) as subproc:
        pairs = zip(random_run(dummy, 15), random_run(subproc, 15), strict=True)
        assert all(same(one, other) for one, other in pairs)


def test_atari_is_named_as_gymnasium_names_it():
    spec = probe("gymnasium/ale_py:ALE/Pong-v5", {"frameskip": 4})
    assert spec.players[0].layout.shapes == {"image": ((210, 160, 3), np.uint8)}
