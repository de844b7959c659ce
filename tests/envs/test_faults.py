"""Faults of environments: what is given up, what goes on, what is told, and when it is too much."""

import logging
from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, EnvError, SaveError
from marltrain.core.seeds import child_seed
from marltrain.envs import make_vector
from marltrain.envs.faults import WINDOW, Fault, FaultLog, FaultPolicy, cut_by, decode_faults, encode_faults
from marltrain.envs.vector import check_timeout
from tests.envs.driving import act, random_run, same
from tests.faulty_toys import Broken, Flaky
from tests.toys import Crowd

BROKEN = ("outside", "nan", "reward", "shape", "missing", "truncated", "stranger", "no moves", "no mask")
KINDS = {"raise": "exception", **dict.fromkeys(BROKEN, "contract")}


def seed_of(e: int, episode: int, run: int = 5) -> int:
    return child_seed(run, "episode", "train", e, episode)


class UpdateScheduler:
    """What one environment of `Flaky` should do, worked out from its seeds."""

    def __init__(self, e: int, at: int, kind: str, *, every: int = 3, past: bool = False) -> None:
        self.e, self.at, self.kind, self.every, self.past = e, at, kind, every, past
        self.episode, self.t = 0, 0
        self.faults = self.begin()

    def broken(self) -> bool:
        return seed_of(self.e, self.episode) % self.every == 0

    def fault(self):
        return self.kind, self.e, self.episode, seed_of(self.e, self.episode), self.at

    def begin(self) -> list:
        """Skip the episodes that fail to begin."""
        self.t, data = 0, []
        while self.at == 0 and self.broken():
            data.append((*self.fault(), ()))
            self.episode += 1
        return data

    def step(self) -> tuple[bool, list]:
        """Return whether the episode ended, or was given up, and the faults."""
        self.t += 1
        data = []
        if self.t == self.at and self.broken():
            data = [(*self.fault(), (self.e,))]
            self.episode += self.past  # the episode after it has begun by then, and is given up, too
        elif self.t < 10:
            return False, []
        self.episode += 1
        return True, data + self.begin()


def told(faults) -> list:
    return [(f.kind, f.env, f.episode, f.seed, f.step, f.cut) for f in faults]


@pytest.mark.parametrize("fault", KINDS)
@pytest.mark.parametrize("at", [0, 3, 10])
def test_a_fault_costs_the_running_episode_of_one_environment(fault, at):
    if fault in ("reward", "truncated", "stranger", "missing") and at == 0:
        return  # none that a reset can have
    if fault in ("no moves", "no mask", "missing", "truncated", "stranger") and at == 10:
        return  # none that an ended episode can have
    past = at == 10 and KINDS[fault] == "contract" and fault != "shape"
    with make_vector(Flaky, {"fault": fault, "at": at}, 3, on_fault="restart", max_env_restarts=99) as vector:
        schedulers = [UpdateScheduler(e, at, KINDS[fault], past=past) for e in range(3)]
        step = vector.reset(5)
        assert told(vector.faults) == [f for scheduler in schedulers for f in scheduler.faults]
        seen = 0
        for _ in range(60):
            step = vector.step(act(vector.spec, 3))
            after = [scheduler.step() for scheduler in schedulers]
            assert told(vector.faults) == [f for _, faults in after for f in faults]
            assert step.ended.tolist() == [ended for ended, _ in after]
            assert step.episode.tolist() == [scheduler.episode for scheduler in schedulers]
            cut = cut_by(vector.faults)
            seen += len(vector.faults)
            assert not step.terminated.any()
            assert not step.reward[:, cut].any() and not step.truncated[:, cut].any()
            whole = np.setdiff1d(np.arange(3), cut)
            assert (step.reward[:, whole] == 1).all()
            assert (step.truncated[:, whole] == step.ended[whole]).all()
            assert step.turn[0].all()
            obs = step.obs[0]
            assert isinstance(obs, np.ndarray)
            assert np.allclose(obs[..., 0], np.array([scheduler.t / 10 for scheduler in schedulers]))
        assert seen > 2


class Mixed(Flaky):
    """Raises, or publishes NaN, by its seed."""

    def _now(self, fault):
        return super()._now(self.fault) and fault == ("raise" if self.seed % 2 else "nan")


@pytest.mark.parametrize(
    ("env", "fault", "at"),
    [(Flaky, "raise", 3), (Flaky, "nan", 10), (Flaky, "raise", 0), (Flaky, "nan", 0), (Mixed, "outside", 3)],
)
def test_the_same_faults_in_any_number_of_workers(env, fault, at):
    settings: Any = {"on_fault": "restart", "max_env_restarts": 99}
    places: list[Any] = [{}, {"vector": "subproc", "num_workers": 1}, {"vector": "subproc", "num_workers": 3}]
    runs = []
    for place in places:
        with make_vector(env, {"fault": fault, "at": at}, 5, **settings, **place) as vector:
            run = random_run(vector, 40)
            with_faults = []
            vector.reset(5)
            for _ in range(40):
                vector.step(act(vector.spec, 5))
                with_faults.append([f._replace(traceback="") for f in vector.faults])
            runs.append((run, with_faults))
    for run, with_faults in runs[1:]:
        assert all(same(a, b) for a, b in zip(runs[0][0], run, strict=True))
        assert with_faults == runs[0][1]
    assert any(runs[0][1])


def test_a_fault_is_logged_with_all_that_is_known(caplog):
    with make_vector(Flaky, {}, 1, on_fault="restart") as vector, caplog.at_level(logging.WARNING, "marltrain"):
        vector.reset(next(run for run in range(99) if seed_of(0, 0, run) % 3 == 0))
        for _ in range(3):
            vector.step(act(vector.spec))
    (record,) = caplog.records
    (fault,) = vector.faults
    assert record.name == "marltrain" and record.levelno == logging.WARNING
    assert fault.message == (
        f"environment 0 (Flaky), episode 0 (seed {fault.seed}), step 3: ZeroDivisionError: "
        "a fault of the environment's own"
    )
    assert fault.message in record.getMessage() and 'toys.py", line' in record.getMessage()


@pytest.mark.parametrize("fault", ["raise", "nan"])
def test_code_that_has_never_worked_is_an_error_unless_told_otherwise(fault):
    """The third episode of an object fails: in the first one that is an error, later not."""
    with make_vector(Broken, {"fault": fault, "at": 3}, 1, on_fault=None) as vector:
        vector.reset(0)
        with pytest.raises(EnvError, match=r"episode 0 .*step 3"):
            for _ in range(3):
                vector.step(act(vector.spec))
    with make_vector(Broken, {"fault": fault, "at": 3, "episode": 2}, 1, on_fault=None) as vector:
        vector.reset(0)
        for t in range(1, 24):
            vector.step(act(vector.spec))
            assert len(vector.faults) == (t == 23)
        vector.reset(0)  # it has finished an episode before: what follows is as ever
        assert not vector.faults
    with make_vector(Broken, {"fault": fault, "at": 3, "episode": 2}, 1, on_fault="raise") as vector:
        vector.reset(0)
        with pytest.raises(EnvError, match=r"episode 2 .*step 3"):
            for _ in range(23):
                vector.step(act(vector.spec))


class Objects(Flaky):
    """Counts its objects, and cannot be closed once it has failed."""

    built = closed = 0

    def __init__(self) -> None:
        super().__init__()
        Objects.built += 1

    def close(self):
        Objects.closed += 1
        if self.seed % 3 == 0 and self.t == 3:
            raise OSError("cannot be closed")


def test_an_environment_that_failed_is_replaced_by_a_new_one():
    vector = make_vector(Objects, None, 2, on_fault="restart", max_env_restarts=99)
    before, faults = Objects.built, 0
    vector.reset(0)
    for _ in range(40):
        vector.step(act(vector.spec, 2))
        faults += len(vector.faults)
    assert faults > 2 and Objects.built == before + faults
    vector.close()
    assert Objects.closed == Objects.built


@pytest.mark.parametrize("place", [{}, {"vector": "subproc", "num_workers": 2}])
@pytest.mark.parametrize("fault", ["raise", "nan"])
def test_an_environment_that_never_begins_stops_with_the_whole_story(place, fault):
    with make_vector(Flaky, {"fault": fault, "at": 0, "every": 1}, 2, on_fault="restart", max_env_restarts=4,
                     **place) as vector:  # fmt: skip
        with pytest.raises(
            EnvError, match=r"faults within 10,000 env steps; max_env_restarts=4 are survived"
        ) as raised:
            vector.reset(0)
        assert str(raised.value).startswith("10 faults" if place else "5 faults")  # two workers have given up, or one
        seeds = [child_seed(0, "episode", "train", 0, k) for k in range(4)]
        for k, seed in enumerate(seeds):
            assert f"environment 0 (Flaky), episode {k} (seed {seed}), step 0" in str(raised.value)
        assert ("The last traceback" in str(raised.value)) == (fault == "raise")


def test_faults_are_counted_within_a_window_of_env_steps(caplog):
    fault = Fault("exception", 0, 1, 2, 3, "it broke")
    ledger = FaultLog(FaultPolicy(max_env_restarts=2))
    ledger.add([fault], 0)
    ledger.add([fault], 10)
    ledger.add([fault], WINDOW)  # the first is past
    with pytest.raises(EnvError, match=r"3 faults .*\n  it broke\n  it broke\n  it broke\n"):
        ledger.add([fault], WINDOW + 9)
    ledger.clear()
    ledger.add([fault, fault], WINDOW + 9)
    assert len(caplog.records) == 6


def test_every_reset_counts_from_zero():
    """As a test does, which plays the same episodes every time."""
    with make_vector(Flaky, {"every": 1}, 1, on_fault="restart", max_env_restarts=1) as vector:
        for _ in range(3):
            vector.reset(5)
            for _ in range(3):
                vector.step(act(vector.spec))
            assert len(vector.faults) == 1
        with pytest.raises(EnvError, match="2 faults"):
            for _ in range(3):
                vector.step(act(vector.spec))


class Bottomless(Crowd):
    """Its global state is NaN at the end of some episodes, and there alone."""

    def reset(self, seed=None, options=None):
        self.broken = bool(seed) and seed % 3 == 0
        return super().reset(seed=seed)

    def state(self):
        return np.array([self.t, np.nan if self.broken and self.t == self.length else 0], np.float32)


def test_a_global_state_that_was_wrong_is_told_once():
    with make_vector(Bottomless, None, 2, with_state=True, on_fault="restart", max_env_restarts=9) as vector:
        vector.reset(next(run for run in range(99) if seed_of(1, 0, run) % 3 == 0 and seed_of(0, 0, run) % 3))
        for _ in range(3):
            vector.step(act(vector.spec, 2))
        step = vector.step(act(vector.spec, 2))
        (fault,) = vector.faults
        assert fault[:3] == ("contract", 1, 0) and fault.step == 4 and fault.cut == (1,)
        assert step.final_state is not None and step.final_state.tolist() == [[4, 0], [0, 0]]
        vector.step(act(vector.spec, 2))
        assert not vector.faults


def test_a_ledger_goes_on_in_another_process():
    fault = Fault("exception", 0, 1, 2, 3, "it broke", "in line 3", (0,))
    ledger, other = FaultLog(FaultPolicy(max_env_restarts=2)), FaultLog(FaultPolicy(max_env_restarts=2))
    ledger.add([fault, fault], 100)
    other.restore(ledger.state(100 + WINDOW - 1), 0)
    assert other.state(0).tolist() == ledger.state(100 + WINDOW - 1).tolist()
    with pytest.raises(EnvError, match="3 faults"):
        other.add([fault], 0)
    other.restore(ledger.state(100 + WINDOW - 1), 0)
    other.add([fault, fault], 1)  # the two before are past by now


def test_faults_travel_as_json():
    faults = [Fault("exception", 0, 1, 2, 3, "it broke", "in line 3", (0, 1)), Fault("died", -1, -1, -1, -1, "x")]
    assert decode_faults(encode_faults(faults)) == faults
    assert cut_by([*faults, faults[0]._replace(cut=(4, 0))]).tolist() == [0, 1, 4]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_fault": "restarts"}, r"on_fault must be one of raise, restart, got 'restarts'. Did you mean 'restart'\?"),
        ({"on_fault": 3}, "on_fault must be a string or None, got 3"),
        ({"max_env_restarts": -1}, "max_env_restarts must be at least 0, got -1"),
        ({"max_env_restarts": 1.5}, "max_env_restarts must be an integer, got 1.5"),
        ({"env_timeout": 0, "vector": "subproc"}, "make_vector: env_timeout must be greater than 0, got 0"),
        ({"env_timeout": float("nan"), "vector": "subproc"}, "env_timeout is not a number"),
        ({"env_timeout": float("inf"), "vector": "subproc"}, "env_timeout must be between"),
        ({"env_timeout": True, "vector": "subproc"}, "env_timeout must be a number or None, got True"),
        ({"env_timeout": 2.5}, r'env_timeout=2.5 needs worker processes.* use vector="subproc"'),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_vector(Flaky, None, 2, **settings)


def test_a_native_game_has_no_timeout():
    with pytest.raises(ConfigError, match="env_timeout=1 has no meaning for a native game"):
        make_vector("marltrain/CartPole-v1", None, 2, vector="subproc", env_timeout=1.0)
    check_timeout(None, vector="dummy", native=True)


def test_an_illegal_action_is_no_fault_of_the_environments():
    with make_vector(Flaky, {}, 1, on_fault="restart") as vector:
        vector.reset(0)
        with pytest.raises(EnvError, match="action 7 is not legal"):
            vector.step(act(vector.spec, left=7))


def test_what_is_survived():
    first, later = {"proven": False}, {"proven": True}
    assert not any(
        FaultPolicy("raise").survives(kind, **later) for kind in ("exception", "contract", "timeout", "died")
    )
    assert all(FaultPolicy("restart").survives(kind, **first) for kind in ("exception", "contract", "timeout", "died"))
    assert [FaultPolicy(None).survives(k, **first) for k in ("exception", "contract", "timeout", "died")] == [
        False, False, True, True,
    ]  # fmt: skip
    assert all(FaultPolicy(None).survives(kind, **later) for kind in ("exception", "contract", "timeout", "died"))


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (b"\xff", "the faults of environments are not JSON"),
        (b"{}", r"the faults of environments must be of type list, got \{\}"),
        (b"[3]", "a fault of an environment must be of type list, got 3"),
        (b"[[0, [1, 2]]]", "a fault of an environment must have the fields kind, env, "),
        (b'[[0, ["died", 0, 0, 0, "1", "x", "", []]]]', "step must be of type int, got '1'"),
        (b'[[0, ["died", 0, 0, 0, -2, "x", "", []]]]', "must be from -1 to 9223372036854775807, got -2"),
        (b'[[0, ["died", 0, 0, 0, 1, "x", "", ["0"]]]]', "must be of type int, got '0'"),
        (b'[[1, ["died", 0, 0, 0, 1, "x", "", []]]]', "env steps must be from -9007199254740992 to 0, got 1"),
    ],
)
def test_a_ledger_of_anything_else_is_refused(told, message):
    with pytest.raises(SaveError, match=message):
        FaultLog(FaultPolicy(max_env_restarts=2)).restore(np.frombuffer(told, np.uint8), 0)
