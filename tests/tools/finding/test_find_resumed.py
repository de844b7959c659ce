"""Comparisons of candidates that go on after their process has ended: equal in every number to those that did not."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.tools.search import train_all
from marltrain.trainer.training import loop
from marltrain.trainer.training.run import Run
from tests.tiers import LONG
from tests.tools.bandit import SETTINGS, TRAINER, Bandit, Regressor
from tests.tools.killing import Killed, kill
from tests.toys import Identity
from tests.trainer.running import SHORT, SMALL, dqn

FEW: dict[str, Any] = {"num_train_envs": 3, "num_test_envs": 2, "update_freq": 12, "batch_size": 6,
                       "episodes_per_test": 2, "test_freq_steps": 20}  # fmt: skip
KINDS: dict[str, Any] = {
    "ppo": ("ppo", {"network": SMALL, "minibatches": 2, "epochs": 1}),
    "dqn": ("dqn", {"network": SMALL, "learning_starts": 0, "update_per_step": 0.5}),
    "vdn": ("vdn", {"network": SMALL, "learning_starts": 0}),
}
"""Two that are trained together, each in a learner of its own, and a team, whose trainings run alone."""


class Shared(Identity):
    """Every player receives the sum of all rewards, as a team needs it."""

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, dict.fromkeys(rewards, sum(rewards.values())), *rest


def compared(resume: Any = None, **settings: Any) -> mt.FindResult:
    """3 candidates x 2 seeds; tests after 20, 40 and 60 env steps."""
    given = {"steps": 60, "seeds": 2, "by": "loss", "env_args": SHORT, "trainer": FEW, "resume": resume, **settings}
    return mt.find_agent(KINDS, Shared, **given)


@pytest.fixture(scope="module")
def whole() -> mt.FindResult:
    """A comparison that was not saved."""
    return compared()


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> Path:
    """The folder of a search that is finished."""
    folder = tmp_path_factory.mktemp("search") / "s"
    compared(folder)
    return folder


def assert_equal(result, whole):
    """The ranking, its intervals, and every test and loss of every training."""
    assert repr(result) == repr(whole)
    for name in ("table", "curves", "errors"):
        assert getattr(result, name).to_csv() == getattr(whole, name).to_csv()


def test_a_finished_search_says_so_and_trains_nothing(whole, ended, monkeypatch, caplog):
    """Its folder holds the outcomes, and no checkpoints."""
    assert [path.name for path in ended.iterdir()] == ["search.json"]
    monkeypatch.setattr(train_all, "_Runs", lambda *arguments: None)
    assert_equal(compared(ended), whole)
    assert "this search is finished: nothing is trained" in caplog.text


@pytest.mark.parametrize(
    ("owner", "name", "call", "how"),
    [
        (Run, "collect", 3, "from env step 0"),  # in the first round of those together
        (os, "replace", 9, "from env step 21"),  # while the second checkpoint is written
        (Run, "collect", 51, "5 of 6 trainings have ended"),  # in the second one alone
        *LONG
        * [
            (Run, "collect", 10, "from env step 21"),
            (loop, "last_checkpoint", 1, "from env step 60"),  # at their end
            (Run, "collect", 22, "4 of 6 trainings have ended"),  # in the first round of the first one alone
        ],
    ],
)
def test_a_killed_search_goes_on_and_equals_the_whole_one(owner, name, call, how, whole, tmp_path, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        kill(patch, owner, name, call)
        with pytest.raises(Killed):
            compared(tmp_path / "s")
    assert_equal(compared(tmp_path / "s"), whole)
    assert f"the search goes on{' ' if how.startswith('from') else ': '}{how}\n" in caplog.text


def test_ctrl_c_keeps_the_step(whole, tmp_path, monkeypatch):
    """Within the updates of those together, and in a training alone."""
    for call in (5, 30):  # of 15 that are left, and 20 of each alone
        with monkeypatch.context() as patch:
            kill(patch, Run, "collect", call, lambda: os.kill(os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                compared(tmp_path / "s")
    assert_equal(compared(tmp_path / "s"), whole)


def test_losses_are_equal_wherever_compiled_steps_are_interrupted(tmp_path, monkeypatch):
    """One training of a kind runs alone, and its native game makes up to 3 rounds of updates at once."""
    own = {"network": SMALL, "learning_starts": 0, "jit_compile": True}
    trainer = {**FEW, "test_freq_steps": 48, "update_freq": 3}

    def compare(resume=None):
        kinds = {"dqn": ("dqn", own), "vdn": ("vdn", own)}
        return mt.find_agent(
            kinds, "marltrain/CartPole-v1", steps=96, seeds=1, by="loss", trainer=trainer, resume=resume
        )

    expected = compare()
    with monkeypatch.context() as patch:
        patch.setattr("marltrain.trainer.training.run.MOST_STEPS", 2)  # collector calls end elsewhere
        kill(patch, Run, "collect", 5, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            compare(tmp_path / "s")
    assert_equal(compare(tmp_path / "s"), expected)


def test_a_candidate_that_has_failed_stays_so(tmp_path, monkeypatch):
    """Rate 9 diverges in the first half: killed in the second, the other goes on alone."""

    def rates(resume=None):
        trainer = {**TRAINER, "test_freq_steps": 160}
        return mt.find_learning_rate(
            Regressor, Bandit, [1.0, 9.0], seeds=1, steps=480, trainer=trainer, resume=resume, **SETTINGS
        )

    expected = rates()
    assert expected.table["failed"].tolist() == [0, 1]
    with monkeypatch.context() as patch:
        kill(patch, Run, "collect", 100)
        with pytest.raises(Killed):
            rates(tmp_path / "s")
    assert_equal(rates(tmp_path / "s"), expected)
    monkeypatch.setattr(train_all, "_Runs", lambda *arguments: None)
    assert_equal(rates(tmp_path / "s"), expected)


class Brittle(Identity):
    """Raises in its 70th step of training, in any of its copies, unless all are well."""

    made = 0

    def step(self, actions):
        type(self).made += 1
        if type(self).made == 70:
            raise OSError("no more symbols")
        return super().step(actions)


def test_trainings_that_failed_together_go_on_alone(tmp_path, monkeypatch):
    """The error comes among the four; alone, each is trained again, and the second one is killed."""

    def rates(resume=None, made=0):
        Brittle.made = made
        given: dict[str, Any] = {"network": SMALL, "epochs": 1, "minibatches": 1, "env_args": SHORT, "trainer": FEW}
        return mt.find_learning_rate("ppo", Brittle, [1e-3, 1e-1], seeds=2, steps=60, resume=resume, **given)

    with pytest.warns(UserWarning, match=r"4 trainings failed together: .*no more symbols.* 4 are repeated alone"):
        expected = rates()
    with monkeypatch.context() as patch:
        kill(patch, loop, "play_test", 8)
        with pytest.warns(UserWarning, match="4 are repeated alone"), pytest.raises(Killed):
            rates(tmp_path / "s")
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["alone-1", "search.json"]
    found = rates(tmp_path / "s", made=1000)
    assert len(found.errors) == len(expected.errors) == 0
    assert_equal(found, expected)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"seeds": 3}, r"seeds is \[0, 1, 2\], and was \[0, 1\]"),
        ({"seeds": [1, 0]}, r"seeds\[0\] is 1, and was 0"),
        ({"by": "metric"}, "by is 'metric', and was 'loss'"),
        ({"final": 1.0}, "final is 1.0, and was 0.25"),
        ({"steps": 80}, "steps is 80, and was 60"),
        ({"env_args": {**SHORT, "choices": 4}}, "env_args.choices is given only now"),
        ({"epsilon": 0.5}, "settings.epsilon is given only now"),
        ({"trainer": {**FEW, "update_freq": 6}}, "trainer.update_freq is 6, and was 12"),
    ],
)
def test_a_search_of_other_settings_is_refused(settings, told, ended):
    """Also if it is finished."""
    with pytest.raises(ConfigError, match=told):
        compared(ended, **settings)


def test_other_candidates_are_refused(tmp_path):
    given: dict[str, Any] = {"seeds": 1, "steps": 20, "env_args": SHORT, "trainer": FEW, "resume": tmp_path / "s",
                             "by": "loss"}  # fmt: skip
    agents = [dqn(seed=3)[0], mt.FunctionAgent(lambda observation: 1)]
    mt.find_learning_rate(agents, Identity, [1e-3, 1e-2], **given)
    same = [dqn(seed=3)[0], mt.FunctionAgent(lambda observation: 1)]
    mt.find_learning_rate(same, Identity, [1e-3, 1e-2], **given)
    for others, rates, data in (
        (agents, [1e-2, 1e-3], r"rates\[0\] is 0.01, and was 0.001"),
        ([dqn(seed=4)[0], agents[1]], [1e-3, 1e-2], r"agents\[0\].sha256 is"),
        ([agents[0], mt.FunctionAgent(lambda observation: 0)], [1e-3, 1e-2], r"agents\[1\].function.code is"),
        ([agents[0], mt.RandomAgent(seed=1)], [1e-3, 1e-2], r"agents\[1\].type is 'RandomAgent', and was 'Function"),
    ):
        with pytest.raises(ConfigError, match=data):
            mt.find_learning_rate(others, Identity, rates, **given)
    given |= {"resume": tmp_path / "o", "steps": 40}
    own = {"sgd": {"optimizer": "sgd"}, "adam": {"optimizer": "adam"}}
    mt.find_optimizer("ppo", Identity, own, network=SMALL, epochs=1, minibatches=1, **given)
    with pytest.raises(ConfigError, match=r"candidates\[0\] is 'adam', and was 'sgd'"):
        reordered = dict(reversed(own.items()))
        mt.find_optimizer("ppo", Identity, reordered, network=SMALL, epochs=1, minibatches=1, **given)
    own["adam"]["learning_rate"] = 0.1  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"optimizers\.adam\.learning_rate is given only now"):
        mt.find_optimizer("ppo", Identity, own, network=SMALL, epochs=1, minibatches=1, **given)


def test_a_full_disk_ends_the_search_and_no_candidate_is_blamed(tmp_path, monkeypatch, whole):
    with monkeypatch.context() as patch:

        def full(source, target):
            if "checkpoints" in str(target):
                raise OSError(28, "No space left on device")
            return replace(source, target)

        replace = os.replace
        patch.setattr(os, "replace", full)
        with pytest.raises(mt.SaveError, match="No space left on device"):
            compared(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    assert_equal(compared(tmp_path / "s"), whole)


def test_a_search_that_fails_at_once_leaves_no_folder(tmp_path):
    """Its settings can be mended, and the search begun in the same folder."""
    given: dict[str, Any] = {"steps": 20, "seeds": 1, "trainer": FEW, "env_args": SHORT, "by": "loss"}
    with pytest.raises(ConfigError, match="candidate '-1'"):
        mt.find_learning_rate("ppo", Identity, [1e-3, -1.0], resume=tmp_path / "s", **given)
    assert not (tmp_path / "s").exists()
    given |= {"network": SMALL, "minibatches": 1}
    found = mt.find_learning_rate("ppo", Identity, [1e-3, 1e-2], resume=tmp_path / "s", **given)
    assert np.isfinite(found.table["score"]).all()
