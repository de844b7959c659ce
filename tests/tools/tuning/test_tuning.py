"""`tune`: the number of trials, resumption, failures, several processes, the file of the best settings."""

import multiprocessing
import os
import re
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.tools.run_files.reading import read_settings
from marltrain.tools.search.train_all import train_all
from marltrain.tools.tuning import trials as trials_of
from marltrain.tools.tuning.study import SLOT, Study, TuneSettings, _lock_file
from marltrain.tools.tuning.tuning import _first_error
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.running import SHORT, SMALL

SPACE = {"network": SMALL, "minibatches": 1, "epochs": 1, "learning_rate": (1e-3, 1.0), "gamma": 0.9, "gae_lambda": 0.9,
         "clip": 0.2, "entropy_coef": 0.0, "value_coef": 0.5}  # fmt: skip
FEW = {"num_train_envs": 3, "num_test_envs": 2, "update_freq": 12, "batch_size": 6, "episodes_per_test": 2}


def tune(space=SPACE, trials=4, **settings):
    given = {"steps": 24, "fresh_seeds": 2, "trainer": FEW, "env_args": SHORT, "progress": False, **settings}
    return mt.tune("ppo", Identity, space, trials=trials, **given)


def study_of(**settings):
    return Study(TuneSettings(**{"pruner": "none", "steps": 24, "warmup_steps": 0, **settings}), 2, {})


def rows(result):
    return result.table[["trial", "state", "metric", "learning_rate"]].to_csv()


def test_equal_seeds_give_equal_trials_alone_and_in_a_population():
    alone, again, together = tune(trials=3), tune(trials=3), tune(trials=3, population=3, warmup_trials=3)
    assert rows(alone) == rows(again)
    assert rows(alone) == rows(tune(trials=3.0, seeds=1.0, population=1.0, steps=24.0, jobs=1.0))
    assert together.table["learning_rate"].tolist() == alone.table["learning_rate"].tolist()  # drawn at random
    assert together.table["metric"].tolist() == pytest.approx(alone.table["metric"].tolist())
    assert rows(tune(trials=3, seed=1)) != rows(alone)
    assert alone.study.best_params["learning_rate"] == alone.settings["agents"]["learning_rate"]


def test_an_interrupted_study_resumed_has_exactly_the_asked_trials(tmp_path, monkeypatch):
    """Ctrl-C in the third trial; the fourth and the repeated third equal those of a study without an interrupt."""
    storage, played = f"sqlite:///{tmp_path}/a.db", []

    def interrupt(*arguments):
        played.append(1)
        if len(played) == 3:
            raise KeyboardInterrupt
        train_all(*arguments)

    monkeypatch.setattr(trials_of, "train_all", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tune(storage=storage)
    monkeypatch.undo()
    result = tune(storage=storage)
    assert result.table["trial"].tolist() == [0, 1, 2, 3] and len(result.study.trials) == 5
    assert rows(result) == rows(tune())
    assert len(tune(storage=storage).study.trials) == 5  # nothing is left to do
    assert len(tune(storage=storage, trials=5).table) == 5


def test_a_trial_of_a_dead_process_is_made_again(tmp_path):
    storage = f"sqlite:///{tmp_path}/a.db"
    ended = multiprocessing.get_context("fork").Process(target=_ask_and_die, args=(storage,))
    ended.start()
    ended.join()
    result = tune(storage=storage, trials=2)
    assert result.table["trial"].tolist() == [0, 1] and len(result.study.trials) == 3


def _ask_and_die(storage):
    pytest.MonkeyPatch().setattr(trials_of, "train_all", lambda *arguments: os._exit(0))
    tune(storage=storage, trials=2)


def test_a_study_searches_what_it_was_begun_with(tmp_path):
    storage = f"sqlite:///{tmp_path}/a.db"
    tune(storage=storage, trials=1, fresh_seeds=0)
    with pytest.raises(ConfigError, match=r"tune.*setting epochs is \[.*and was 1"):
        tune({**SPACE, "epochs": [1, 2]}, storage=storage, trials=2)
    with pytest.raises(ConfigError, match=r"tune.*env is .*CartPole"):
        mt.tune("ppo", "marltrain/CartPole-v1", SPACE, trials=2, steps=24, storage=storage)


def test_a_metric_that_is_not_finite_is_a_failure():
    study = study_of(trials=1)
    study.complete(study.claim(1, lambda trial: {})[0][0], float("nan"))
    assert [trial.user_attrs["error"] for trial in study.finished()] == ["metric nan"]
    assert study.claim(1, lambda trial: {}) == [] and study.best() is None


@pytest.fixture
def seen(monkeypatch):
    """The agents that trials make."""
    result: list[Any] = []

    def recorded(*args, **settings):
        result.append(mt.make_agents(*args, **settings))
        return result[-1]

    monkeypatch.setattr("marltrain.tools.search.candidates.make_agents", recorded)
    return result


def test_suggestions_replace_settings_of_a_pair(seen):
    pair = ("ppo", {"learning_rate": 0.01, "max_grad_norm": None})
    result = mt.tune(pair, Identity, SPACE, trials=1, steps=24, fresh_seeds=0, trainer=FEW, env_args=SHORT)
    rate = result.study.best_params["learning_rate"]
    assert seen and all(agents[0].hyper.learning_rate == rate for agents in seen)
    assert result.settings["agents"]["learning_rate"] == rate and result.settings["agents"]["max_grad_norm"] is None


def test_settings_of_a_pair_without_a_range_are_kept(seen):
    """Discounts of 0.5 and clips of 0.3, which have default ranges; alone, by player and in a list."""
    own = {"gamma": 0.5, "clip": 0.3, "network": SMALL, "minibatches": 1, "epochs": 1}
    given: dict[str, Any] = {
        "trials": 1,
        "steps": 24,
        "fresh_seeds": 1,
        "trainer": FEW,
        "env_args": {**SHORT, "players": 2},
    }
    several: list[Any] = [("ppo", own), {"*": ("ppo", own)}, [("ppo", own), ("ppo", own)]]
    for name in several:
        seen.clear()
        result = mt.tune(name, Identity, {"entropy_coef": (1e-4, 0.1)}, progress=False, **given)
        assert len(seen) >= 2 and all(a.hyper.gamma == 0.5 and a.hyper.clip == 0.3 for output in seen for a in output)
        assert {a.hyper.entropy_coef for a in seen[-1]} == {result.settings["agents"]["entropy_coef"]}
        assert "1 - gamma" not in result.study.best_params
    assert mt.tune(("ppo", own), Identity, progress=False, **given).settings["agents"]["gamma"] == 0.5


def test_a_suggestion_that_fails_frees_its_slot():
    study = study_of(trials=2)

    def second_fails(trial):
        return {} if trial.number == 0 else trial.suggest_float("learning_rate", 1.0, 0.5)

    with pytest.raises(ValueError, match="low"):
        study.claim(2, second_fails)
    assert [trial.state.name for trial in study.study.trials] == ["FAIL", "FAIL"] and not study.finished()
    assert len(study.claim(2, lambda trial: {})) == 2


def test_a_failing_trial_is_reported_and_the_study_goes_on(capsys):
    """A rollout of 12 rows has no 1,000 minibatches."""
    result = tune({**SPACE, "minibatches": [1, 1000]}, trials=5, progress=True)
    assert set(result.table["state"]) == {"complete", "fail"} and len(result.table) == 5
    failed = result.table[result.table["state"] == "fail"]
    assert failed["error"].str.contains("minibatches").all() and (failed["minibatches"] == "1000").all()
    assert len(re.findall(r"^trial \d: failed: ", capsys.readouterr().out, re.MULTILINE)) == len(failed)
    with pytest.raises(AgentError, match=r"none of 2 trials is complete\. .*minibatches"):
        tune({**SPACE, "minibatches": 1000}, trials=2)


def test_failures_with_fresh_seeds_are_told_with_their_error(monkeypatch):
    def second_fails(plan, trainings, *watch):
        train_all(plan, trainings, *watch)
        for one in trainings[1:]:
            one.error = "a loss that is not finite"

    monkeypatch.setattr(trials_of, "train_all", second_fails)
    expected = r"1 of 2 trainings with fresh seeds failed; the first one, of seed \d+: a loss that is not finite"
    with pytest.warns(UserWarning, match=expected):
        assert len(tune(trials=1).metrics) == 1


def test_two_processes_claim_different_slots(tmp_path):
    """Two studies on one storage stand for two processes: each sees the slots that the other has claimed."""
    storage = f"sqlite:///{tmp_path}/a.db"
    first, second = study_of(trials=3, storage=storage), study_of(trials=3, storage=storage)
    claimed = [study.claim(1, lambda trial: {}) for study in (first, second, first, second)]
    assert [[trial.user_attrs[SLOT] for trial, _ in own] for own in claimed] == [[0], [1], [2], []]
    first.failed(claimed[0][0][0], "an error")  # counts
    first.interrupted(claimed[2][0][0])  # does not
    assert [trial.user_attrs[SLOT] for trial, _ in second.claim(2, lambda trial: {})] == [2]


def test_lines_of_processes_are_told_as_they_come():
    silent, quick, data = Pipe(), Pipe(), []
    ended = SimpleNamespace(join=lambda: None, exitcode=0)

    def tell(text):
        data.append(text)
        if text == "quick":
            silent[1].send(("line", "silent"))
            silent[1].close()

    quick[1].send(("line", "quick"))
    quick[1].close()
    assert _first_error({silent[0]: ended, quick[0]: ended}, tell) == "" and data == ["quick", "silent"]


def test_the_lock_follows_no_link(tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    kept.write_text("text")
    (tmp_path / "a.db.lock").symlink_to(kept)
    with pytest.raises(ConfigError, match="cannot be used"):
        tune(storage=f"sqlite:///{tmp_path}/a.db")
    assert kept.read_text() == "text"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _lock_file("mysql://a").parent == tmp_path / "marltrain"


if LONG:
    from benchmarks.tuning import check

    def test_the_interval_of_ten_more_seeds_contains_the_metric_of_the_file():
        """The best of 12 trials of PPO on CartPole lies above both."""
        best, (low, high), metric, mean, (more_low, more_high) = check()
        assert more_low <= metric <= more_high and low <= mean <= high and best > max(metric, mean)


if LONG:  # processes start slowly

    def test_two_processes_share_a_study(tmp_path):
        result = tune(trials=5, jobs=2, storage=f"sqlite:///{tmp_path}/a.db")
        assert result.table["trial"].tolist() == [0, 1, 2, 3, 4] and len(result.study.trials) == 5
        assert all(trial.user_attrs["owner"].split()[1] != str(os.getpid()) for trial in result.study.trials)
        with pytest.raises(ConfigError, match="sends its arguments to other processes"):
            tune(jobs=2, reward_metric=lambda rewards: 0.0)


def test_bad_trials_are_pruned_by_env_steps():
    """Each test is worse than the one before: every trial after the first is below the median."""
    scores = iter(range(100, 0, -1))
    result = tune(trials=4, warmup_trials=1, warmup_steps=4, reward_metric=lambda rewards: float(next(scores)))
    assert result.table["state"].tolist() == ["complete", *["pruned"] * 3]
    steps = [max(trial.intermediate_values) for trial in result.study.trials]
    assert steps[0] == 24 and all(4 <= step <= 8 for step in steps[1:])
    assert len(tune(trials=2, pruner="hyperband", warmup_trials=0).table) == 2


def test_no_trial_is_pruned_before_the_warm_up_is_complete():
    study = study_of(trials=9, pruner="hyperband", warmup_trials=2)
    study.study.pruner = SimpleNamespace(prune=lambda *_: True)
    for slot in range(3):
        ((trial, _),) = study.claim(1, lambda trial: {})
        assert study.prunes(trial) == (slot == 2)
        study.complete(trial, 1.0)


def test_the_file_names_the_metric_of_fresh_seeds(tmp_path):
    result = tune(trials=2, fresh_seeds=3, seeds=2)
    path = result.save(tmp_path / "settings.toml")
    text, (low, high) = path.read_text(), result.interval
    assert (
        len(set(result.metrics)) > 1
        and f"metric = {result.metric!r}" in text
        and f"interval = [{low!r}, {high!r}]" in text
    )
    assert result.metric == pytest.approx(sum(result.metrics) / 3) and low <= result.metric <= high
    read = read_settings(path)
    assert read == result.settings and read["agents"]["network"] == SMALL
    assert "fresh seeds: metric" in repr(result)
    again: list[Any] = mt.make_agents("ppo", Identity, env_args=SHORT, **read["agents"])
    assert again[0].hyper.learning_rate == result.settings["agents"]["learning_rate"]


def test_pictures_of_a_study(tmp_path):
    drawn = tune({**SPACE, "epochs": [1, 2]}, trials=10, population=10, fresh_seeds=0, pruner="none").plot(
        tmp_path / "a"
    )
    assert [path.name for path in drawn] == ["history.png", "slices.png", "importances.png"]
    assert all(path.stat().st_size > 5_000 for path in drawn)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pruner": "best"}, "pruner .*median, hyperband, none"),
        ({"storage": "sqlite:////no/such/folder/a.db"}, "cannot be used"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"trainer": {"num_envs": 1}}, "tune: trainer: DecentralizedTrainer.*Did you mean 'num_train_envs'"),
        ({"trainer": {"test_freq_steps": None}}, "tune: .*test_freq_steps"),
        ({"trainer": {"seed": 1}}, r"tune: trainer=\{'seed': 1\} cannot be given: give the tool's own seed"),
    ],
)
def test_wrong_arguments_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        tune(**settings)
