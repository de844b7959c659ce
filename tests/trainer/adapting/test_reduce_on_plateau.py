import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from tests.trainer.adapting.test_early_stopping import metrics, run
from tests.trainer.running import changed, dqn, ppo, trainer, weights


def rates(agents, name="learning_rate"):
    return [getattr(agent.hyper, name) for agent in agents]


def test_rates_are_halved_after_each_plateau_down_to_the_bound():
    """Tests: 3 improve; 4, 5 wait -> 0.05; 6, 7 -> 0.03 (the bound); 8, 9: no change."""
    agents = ppo(learning_rate=0.1)
    values = (1, 2, 3, 3, 3, 0, 0, 0, 0, 0)
    result = run(mt.ReduceOnPlateau(patience=2, low=0.03), *values, agents=agents, steps_per_train=81)
    logged = result["history"]["learning_rate/player_0"].dropna().tolist()
    assert logged == [0.05, 0.03, 0.03]
    assert rates(agents) == [0.03, 0.03]
    assert len(result["reward_metric_stats"]) == 10


def test_an_agent_below_the_bound_is_not_raised():
    agents = ppo(learning_rate=0.01)
    run(mt.ReduceOnPlateau(patience=1, low=0.5), 3, 2, 1, agents=agents, steps_per_train=18)
    assert rates(agents) == [0.01, 0.01]


def test_only_the_chosen_agents_and_numbers_change():
    agents = dqn()
    plateau = mt.ReduceOnPlateau("epsilon", players="*_1", patience=1, factor=0.2)
    run(plateau, 3, 2, agents=agents, steps_per_train=9)
    assert rates(agents, "epsilon") == [0.5, 0.1]
    assert rates(agents) == rates(dqn())


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_next_update_uses_the_reduced_rate(backend):
    """A rate that becomes 1e-30 at the second test stops one agent; the other goes on."""
    after: list[list[dict[str, np.ndarray]]] = []
    agents = ppo(backend=backend, learning_rate=0.1)
    note = mt.LambdaCallback(on_test_end=lambda moment: after.append(weights(agents)))
    plateau = mt.ReduceOnPlateau(players="player_0", patience=1, factor=1e-29)
    trainer(
        callbacks=[plateau, note], reward_metric=metrics(3, 2, 1), test_freq=6, steps_per_train=36, update_freq=18
    ).train(agents, [1, 1], plot=False)
    online = [[{n: a for n, a in one.items() if n.startswith("net/actor")} for one in each] for each in after]
    assert len(online) == 3
    assert online[0][0]
    assert changed(online[0], online[1]) == [True, True]
    assert changed(online[1], online[2]) == [False, True]


def test_a_resumed_run_equals_the_whole_one():
    values = (5, 4, 4, 4, 6, 5, 5, 5)
    result = []
    for name, parts in (("whole", [63]), ("halves", [25, 63])):
        agents, played = dqn(learning_rate=0.1), iter(values)
        for i, steps in enumerate(parts):
            agents = dqn(learning_rate=0.1)
            trainer(
                reward_metric=lambda rewards, played=played: next(played), test_freq=3, steps_per_train=steps,
                callbacks=[mt.ReduceOnPlateau(patience=2), mt.Checkpoint(every_steps=9)],
                run_dir=None if i else name,
            ).train(agents, [1, 1], plot=False, resume=name if i else None)  # fmt: skip
        result.append(agents)
    whole, halves = result
    assert rates(whole) == rates(halves) == [0.025, 0.025]
    assert changed(weights(whole), weights(halves)) == [False, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factor": 0}, "factor must be greater than 0, got 0"),
        ({"factor": 1.0}, "factor must be below 1, got 1"),
        ({"factor": 1.5}, "factor must be at most 1, got 1.5"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"low": -1}, "low must be at least 0, got -1"),
        ({"players": []}, "players must be names of players or shell patterns"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=f"ReduceOnPlateau: {message}"):
        mt.ReduceOnPlateau(**arguments)


@pytest.mark.parametrize(
    ("plateau", "agents", "settings", "message"),
    [
        ({"name": "learnin_rate"}, {}, {}, r"PPO of player 'player_0' has no number 'learnin_rate'.*'learning_rate'"),
        ({"name": "value_clip"}, {}, {}, "value_clip of player_0 is None"),
        ({"players": "anna"}, {}, {}, "no player is called 'anna'.*Players: player_0, player_1"),
        ({}, {"learning_rate": mt.linear(1, 0, 9)}, {}, "learning_rate of player_0 follows a schedule"),
        ({}, {}, {"test_freq": None}, "test_freq=None switches tests off"),
    ],
)
def test_what_does_not_fit_the_run_is_refused_before_it_begins(plateau, agents, settings, message, tmp_path):
    with pytest.raises(ConfigError, match=f"ReduceOnPlateau: .*{message}"):
        run(mt.ReduceOnPlateau(**plateau), agents=ppo(**agents), **settings)
    assert not list(tmp_path.iterdir())


def test_agents_without_the_number_are_left_out_unless_they_are_named():
    def mixed():
        return [ppo()[0], mt.RandomAgent()]

    agents = mixed()
    trainer(callbacks=[mt.ReduceOnPlateau(patience=1)], reward_metric=metrics(2, 1), steps_per_train=9).train(
        agents, [1, 0], plot=False
    )
    assert agents[0].hyper.learning_rate == 1.5e-4
    with pytest.raises(ConfigError, match="RandomAgent of player 'player_1' has no number 'learning_rate'"):
        trainer(callbacks=[mt.ReduceOnPlateau(players="player_*")]).train(mixed(), [1, 0], plot=False)


def test_a_number_that_agents_share_is_reduced_once():
    agents = dqn(batch_size=64)
    result = run(mt.ReduceOnPlateau("batch_size", patience=1, factor=0.5), 3, 2, agents=agents, steps_per_train=9)
    assert rates(agents, "batch_size") == [32, 32]
    assert {result["history"][f"batch_size/player_{p}"].dropna().item() for p in range(2)} == {32}
