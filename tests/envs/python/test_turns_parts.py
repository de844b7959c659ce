"""Players that begin another part of an episode with the step that ended the last one, as in MultiEpisodeEnv."""

import numpy as np
import pytest
from pettingzoo.classic import tictactoe_v3
from pettingzoo.utils import BaseWrapper
from pettingzoo.utils.wrappers import MultiEpisodeEnv, MultiEpisodeParallelEnv

import marltrain as mt
from marltrain.envs import DummyVectorEnv, make_vector
from marltrain.policies.memory import Storage, Streams
from tests.envs.driving import act, column, random_run, rewards, run_seed, same
from tests.toys import Crowd, Relay


class OwnLast(BaseWrapper):
    def last(self, observe=True):
        return super().last(observe)


def shown(env):
    """Add the attribute that PettingZoo's wrappers read."""
    env.render_mode = None
    return env


@pytest.mark.parametrize("wrap", [BaseWrapper, OwnLast])
@pytest.mark.parametrize("truncate", [False, True])
def test_two_games_are_one_episode_of_two_parts(wrap, truncate):
    """Two moves of Relay by hand, twice: ann 2, bob 1. The second move ends a game and gives 500, 501 and 502."""
    vector = DummyVectorEnv(
        lambda: wrap(MultiEpisodeEnv(Relay(truncate=truncate, absences=False, length=2), 2)), 1, with_state=False
    )
    spec, step = vector.spec, vector.reset(0)
    seen = []
    for name, action in [("ann", 2), ("bob", 1)] * 2:
        assert list(column(spec, step)["turn"]) == [name]
        step = vector.step(act(spec, **{name: action}))
        seen.append(column(spec, step))
    total = np.sum([list(said["reward"].values()) for said in seen], axis=0).tolist()
    assert total == [2 * (2 + 20 + 500), 2 * (10 + 1 + 501), 2 * (10 + 20 + 502)]
    event = "truncated" if truncate else "terminated"
    everyone = {"ann": True, "bob": True, "cat": True}
    assert [said.get(event) for said in seen] == [None, everyone, None, everyone]
    assert seen[1]["final_obs"] == {"ann": [2, 0, 1], "bob": [2, 1, 1], "cat": [2, 2, 1]}
    assert seen[1]["obs"] == {"ann": [0, 0, -1]} and seen[1]["alive"] == everyone  # the next part has begun
    assert step.ended[0] and step.episode[0] == 1


def test_one_game_is_the_plain_environment():
    plain, wrapped = DummyVectorEnv(Relay, 3), DummyVectorEnv(lambda: MultiEpisodeEnv(Relay(), 1), 3)
    assert all(same(*pair) for pair in zip(random_run(plain, 40), random_run(wrapped, 40), strict=True))


def test_each_part_is_learned_by_itself():
    """Of four moves ann makes 0 and 3: the first brings 0 + 20 + 30, the last, which ends the part, 0 + 500."""
    vector = DummyVectorEnv(lambda: MultiEpisodeEnv(Relay(absences=False, length=4), 2), 1)
    streams = Streams(vector.spec, 1, {0: Storage(10)})
    streams.record_step(vector.reset(0))
    for _ in range(8):
        actions = act(vector.spec)
        streams.record_actions(0, actions[0], {})
        streams.record_step(vector.step(actions))
    ring = streams.rings[0]
    credited = [{t: ring.reward[p, t, 0].item() for t in range(8) if ring.acted[p, t, 0]} for p in range(3)]
    assert credited == [
        {0: 50, 3: 500, 4: 50, 7: 500},
        {1: 30 + 10 + 501, 5: 30 + 10 + 501},
        {2: 10 + 502, 6: 10 + 502},
    ]
    assert ring.drawable_count.tolist() == [4, 2, 2] and ring.terminated.sum((1, 2)).tolist() == [2, 2, 2]


def test_the_parallel_wrapper_plays_games_without_an_end_between_them():
    """Crowd of four steps, twice. red_1 leaves with step 1 of each game and is back with the next one.

    The second game has the next seed, which is odd, so that blue is absent.
    """
    vector = DummyVectorEnv(lambda: MultiEpisodeParallelEnv(shown(Crowd()), 2), 1)
    spec, _ = vector.spec, vector.reset(run_seed([0]))
    alive, ended, paid = [], [], []
    for _ in range(8):
        step = vector.step(act(spec, red_0=1, blue=0, red_1=2))
        alive.append(list(column(spec, step)["alive"]))
        ended.append(bool(step.ended[0]))
        paid.append(rewards(spec, step))
    both, all_three = ["red_0", "red_1"], ["red_0", "blue", "red_1"]
    assert alive[:7] == [all_three, ["red_0", "blue"], ["red_0", "blue"], both, both, ["red_0"], ["red_0"]]
    assert ended == [False] * 7 + [True]
    assert paid == [[1, 50, 2], [1, 50, 2], [1, 50, 0], [1, 50, 0], [1, 0, 2], [1, 0, 2], [1, 0, 0], [1, 0, 0]]


def test_workers_play_the_same():
    def make():
        return MultiEpisodeEnv(Relay(), 3)

    local = make_vector(make, None, 3)
    with make_vector(make, None, 3, vector="subproc", num_workers=2) as workers:
        assert all(same(*pair) for pair in zip(random_run(local, 60), random_run(workers, 60), strict=True))


def test_check_env_knows_that_its_players_return():
    report = mt.check_env(lambda: MultiEpisodeEnv(tictactoe_v3.env(), 2), strict=False)
    assert report.ok, str(report)
