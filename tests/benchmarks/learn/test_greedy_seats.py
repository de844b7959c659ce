import json
from functools import partial

import marltrain as mt
from benchmarks.learn.greedy_seats import GreedySeats
from marltrain.storage.json_files import to_json
from tests.toys import Identity

PERIOD = 64


class Seen(mt.Callback):
    def __init__(self):
        self.masks = []

    def on_collect(self, moment):
        self.masks.append((moment.env_steps, moment.trainer.exploration_mask))


def masks(seed, steps=640, **of_train):
    seen = Seen()
    env = partial(Identity, players=4)
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=4, update_freq=16, steps_per_train=steps, seed=seed, progress=False,
        run_dir=False, test_freq=None, callbacks=[GreedySeats(start=2 * PERIOD, period=PERIOD), seen],
    )  # fmt: skip
    trainer.train(mt.make_agents("ppo", env, seed=0, batch_size=4), [1] * 4, plot=False, **of_train)
    return seen.masks


def test_all_explore_before_the_start_and_a_drawn_part_later():
    found = masks(seed=1)
    assert all(all(mask) for steps, mask in found if steps < 2 * PERIOD)
    drawn = [value for steps, mask in found if steps >= 2 * PERIOD for value in mask]
    assert 0.2 < sum(drawn) / len(drawn) < 0.8


def test_seats_are_drawn_once_a_period_and_depend_on_the_seed_alone():
    found = masks(seed=1)
    by_period: dict[int, set[tuple[bool, ...]]] = {}
    for steps, mask in found:
        by_period.setdefault(steps // PERIOD, set()).add(mask)
    assert all(len(mask) == 1 for mask in by_period.values())
    assert len(set.union(*by_period.values())) > 3
    assert found == masks(seed=1)
    assert found != masks(seed=2)


def test_results_hold_its_settings():
    described = to_json({"callbacks": [GreedySeats(start=100)]})
    assert json.loads(json.dumps(described)) == {
        "callbacks": [{"GreedySeats": {"start": 100, "exploring": 0.5, "period": 4096}}]
    }
