"""W&B and MLflow with small modules in their place that record calls; `make loggers-test` uses the packages."""

import shutil
import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

import marltrain as mt
from tests.trainer.running import ppo, trainer


class Recorded:
    """An object whose every method records its call."""

    def __init__(self, calls: list[Any], **attributes: Any) -> None:
        self._calls = calls
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._calls.append((name, args, kwargs))


@pytest.fixture
def wandb(monkeypatch):
    """A module `wandb`; its `runs` are the calls by the id of the run."""
    module: Any = ModuleType("wandb")
    module.runs = defaultdict(list)

    def init(**arguments):
        calls = module.runs[arguments["id"]]
        calls.append(("init", (), arguments))
        return Recorded(calls, name=arguments["name"], config=Recorded(calls))

    module.init, module.Table, module.Image = init, lambda dataframe: dataframe, lambda file: file
    module.Artifact = lambda name, type: Recorded([], name=name)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


class FakeMLflow:
    """A module `mlflow` with a client that holds its runs: name, params, metrics, artifacts, status."""

    def __init__(self) -> None:
        self.entities = SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
        self.runs: list[Any] = []

    def MlflowClient(self, tracking_uri):  # noqa: N802, the name of mlflow's class
        return self

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id="1") if self.runs else None

    def create_experiment(self, name):
        return "1"

    def create_run(self, experiment, run_name):
        self.runs.append(SimpleNamespace(name=run_name, params={}, metrics=defaultdict(list), artifacts=[], status=""))
        return SimpleNamespace(info=SimpleNamespace(run_id=str(len(self.runs) - 1)))

    def update_run(self, run_id, status):
        self.runs[int(run_id)].status = status

    def get_run(self, run_id):
        return SimpleNamespace(data=SimpleNamespace(metrics=self.runs[int(run_id)].metrics))

    def get_metric_history(self, run_id, metric):
        return [SimpleNamespace(step=step) for step, _ in self.runs[int(run_id)].metrics[metric]]

    def log_batch(self, run_id, metrics=(), params=(), synchronous=None):
        assert synchronous, "a checkpoint counts it as stored"
        self.runs[int(run_id)].params.update(dict(params))
        for name, value, _, step in metrics:
            self.runs[int(run_id)].metrics[name].append((step, value))

    def log_artifact(self, run_id, file):
        self.runs[int(run_id)].artifacts.append(file.rsplit("/", 1)[-1])

    def log_artifacts(self, run_id, folder, name):
        self.runs[int(run_id)].artifacts.append(name)

    def log_image(self, run_id, image, key, step):
        self.runs[int(run_id)].artifacts.append((key, step, image.size))

    def set_terminated(self, run_id, status):
        self.runs[int(run_id)].status = status


@pytest.fixture
def mlflow(monkeypatch):
    module: Any = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


def run(logger, steps=60, more=(), **arguments):
    callbacks = [mt.Checkpoint(every_steps=30), logger, *more]
    result = trainer(callbacks=callbacks, steps_per_train=steps, test_freq=10, run_dir="run")
    return result.train(ppo(), [1, 1], plot=False, **arguments)


def test_wandb_gets_settings_curves_and_files_and_a_resumed_run_continues(wandb):
    run(mt.WandbLogger("mine", mode="offline", tags=["a"], every=1e9), steps=90)
    result = run(mt.WandbLogger("mine", mode="offline", every=1e9), steps=120, resume="run")
    (calls,) = wandb.runs.values()
    begun = [call[2] for call in calls if call[0] == "init"]
    assert [(one["project"], one["mode"], one["tags"], one["name"], one["resume"]) for one in begun] == [
        ("mine", "offline", ["a"], "run", "allow"), ("mine", "offline", None, "run", "allow"),
    ]  # fmt: skip
    configs = [call[1][0] for call in calls if call[0] == "update"]
    assert [config["trainer"]["steps_per_train"] for config in configs] == [90, 120]
    logged = [call[1][0] for call in calls if call[0] == "log"]
    curve = {row["env_steps"]: row["test/metric"] for row in logged if "test/metric" in row}
    assert curve == dict(zip(result["history"]["env_steps"], result["history"]["metric"], strict=True))
    assert [len(row["tests"]) for row in logged if "tests" in row][-1] == len(result["history"])
    assert [call[1][0].name for call in calls if call[0] == "log_artifact"] == ["run-tables", "run-best"] * 2
    assert [call[2] for call in calls if call[0] == "finish"] == [{"exit_code": 0}] * 2


def test_mlflow_gets_parameters_curves_and_files_and_a_resumed_run_sends_no_point_twice(mlflow):
    run(mt.MLflowLogger(every=1e9), steps=90)
    (there,) = mlflow.runs
    there.metrics["test/metric"].append((120, 0.0))  # sent after the checkpoint by a run that was then killed
    result = run(mt.MLflowLogger(every=1e9), steps=180, resume="run")
    steps = [step for step, _ in there.metrics["test/metric"]]
    missing = set(result["history"]["env_steps"]) - set(steps)
    assert mlflow.runs == [there] and steps == sorted(set(steps)) and all(90 < step <= 120 for step in missing)
    assert max(steps) == max(result["history"]["env_steps"])
    assert there.params["trainer/steps_per_train"] == "90" and there.params["seats/1/player"] == "player_1"
    assert {"config.json", "history.parquet", "episodes.parquet", "best"} <= set(there.artifacts)
    assert there.status == "FINISHED" and there.name == "run"


def test_services_get_the_tables_of_a_pool(mlflow):
    learner = ppo()[0]
    pool = mt.OpponentPool(learner, every_steps=30)
    callbacks = [mt.MLflowLogger(), mt.LeagueRatings(episodes=1, resamples=2)]
    rated = trainer(callbacks=callbacks, steps_per_train=60, test_freq_steps=60, test_freq=None)
    rated.train([learner, pool], [1, 0], plot=False)
    assert {"members.parquet", "payoffs.parquet", "ratings.parquet"} <= set(map(str, mlflow.runs[0].artifacts))


def test_services_get_pictures_at_their_env_steps(mlflow, wandb):
    def draw(moment):
        moment.log_picture("mine/curve", Figure(figsize=(3, 2), dpi=100))

    more = [mt.WandbLogger(files=False), mt.CSVLogger(), mt.LambdaCallback(on_test_end=draw)]
    steps = run(mt.MLflowLogger(files=False), more=more)["history"]["env_steps"].tolist()
    assert mlflow.runs[0].artifacts == [("mine/curve", step, (300, 200)) for step in steps]
    (calls,) = wandb.runs.values()
    logged = [call[1][0] for call in calls if call[0] == "log" and "mine/curve" in call[1][0]]
    assert [(row["env_steps"], row["mine/curve"].size) for row in logged] == [(step, (300, 200)) for step in steps]


def test_the_outcome_of_a_run_is_its_status(mlflow, wandb):
    def fail(moment):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        run(mt.MLflowLogger(), more=[mt.WandbLogger(files=False), mt.LambdaCallback(on_collect=fail)])
    assert mlflow.runs[0].status == "FAILED"
    (calls,) = wandb.runs.values()
    assert calls[-1] == ("finish", (), {"exit_code": 1}) and not any(call[0] == "log_artifact" for call in calls)


def test_a_run_inside_an_except_block_is_its_own(mlflow, monkeypatch):
    """The exception that the caller handles did not end the run."""

    def fail(run, name):
        raise OSError("disk full")

    try:
        raise ValueError("earlier")
    except ValueError as earlier:
        run(mt.MLflowLogger())
        monkeypatch.setattr("marltrain.trainer.training.finish.save_agents", fail)
        with pytest.raises(OSError, match="disk full"):
            trainer(callbacks=[mt.MLflowLogger()], steps_per_train=30).train(ppo(), [1, 1], plot=False)
        assert mlflow.runs[0].status == "FINISHED" and not hasattr(earlier, "__notes__")


def test_names_that_mlflow_refuses_are_changed_and_equal_ones_refused(mlflow):
    logger: Any = mt.MLflowLogger()
    logger._client, logger.run_id = mlflow, mlflow.create_run("1", "x").info.run_id
    logger.send({"a+b/loss": 1.0}, 5)
    assert mlflow.runs[0].metrics == {"a_b/loss": [(5, 1.0)]}
    with pytest.raises(mt.ConfigError, match="two of these are equal: a\\+b/x, a_b/x"):
        logger.send({"a+b/x": 1.0, "a_b/x": 2.0}, 5)


@pytest.mark.parametrize(("kind", "package"), [(mt.WandbLogger, "wandb"), (mt.MLflowLogger, "mlflow")])
def test_a_missing_package_names_its_extra(kind, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(mt.ConfigError, match=rf'needs {package}, .* pip install "marltrain\[{package}\]"'):
        kind()


def test_a_run_without_folder_is_refused(wandb):
    with pytest.raises(mt.ConfigError, match="run_dir=False"):
        trainer(callbacks=[mt.WandbLogger()], run_dir=False, steps_per_train=10).train(ppo(), [1, 1])


def test_unknown_mode_is_refused(wandb):
    with pytest.raises(mt.ConfigError, match=r"mode.*online, offline, disabled.*'later'"):
        mt.WandbLogger(mode="later")


def train(logger, more=(), folder="run", **arguments):
    """84 env steps with an update every 12, and checkpoints after 36 and 72; a point after each update."""
    callbacks = [mt.Checkpoint(every_steps=36, keep=9), logger, *more]
    result = trainer(callbacks=callbacks, steps_per_train=84, update_freq=12, test_freq=None, run_dir=folder)
    return result.train(ppo(), [1, 1], plot=False, **arguments)


class Raising(mt.Callback):
    """Logs two values for each update, and raises an error at an env step, between updates or between the values."""

    def __init__(self, event="", at=0):
        self.event, self.at = event, at

    def on_collect(self, moment):
        self._raise("on_collect", moment)

    def on_update_end(self, moment):
        moment.log("twice", moment.updates)
        self._raise("on_update_end", moment)
        moment.log("twice", -moment.updates)

    def _raise(self, event, moment):
        if (event, moment.env_steps) == (self.event, self.at):
            raise RuntimeError("mine")


@pytest.mark.parametrize("event", ["on_collect", "on_update_end"])
@pytest.mark.parametrize("at", [48, 60])
def test_a_run_that_an_exception_ended_and_its_resumed_part_have_every_point_complete(mlflow, wandb, event, at):
    """The exception comes before the update after 48 (60) env steps, or between the two values logged after it."""
    with pytest.raises(RuntimeError, match="mine"):
        train(mt.MLflowLogger(every=0), [mt.WandbLogger(every=0), Raising(event, at)])
    train(mt.MLflowLogger(every=0), [mt.WandbLogger(every=0), Raising()], resume="run")
    steps = list(range(12, 85, 12))
    (there,) = mlflow.runs
    assert there.metrics["train/updates"] == [(step, step / 12) for step in steps]
    assert there.metrics["user/twice"] == [(step, sign * step / 12) for step in steps for sign in (1, -1)]
    (calls,) = wandb.runs.values()
    logged = [call[1][0] for call in calls if call[0] == "log"]
    assert {(row["env_steps"], row["train/updates"]) for row in logged if "train/updates" in row} == {
        (step, step / 12) for step in steps
    }
    assert {(row["env_steps"], row["user/twice"]) for row in logged if "user/twice" in row} == {
        (step, sign * step / 12) for step in steps for sign in (1, -1)
    }


def test_the_last_point_of_a_run_without_a_checkpoint_is_sent_after_an_exception(mlflow):
    with pytest.raises(RuntimeError, match="mine"):
        train(mt.MLflowLogger(every=1e9), [Raising("on_update_end", 24)])
    assert mlflow.runs[0].metrics["train/updates"] == [(24, 2)]


def test_wandb_gets_the_points_again_that_its_process_may_have_lost(wandb, monkeypatch):
    """Killed after the checkpoint, W&B has none of the points of its last seconds."""

    class Copying(mt.Callback):
        def on_checkpoint(self, moment):
            if moment.data["path"].name == "36":
                shutil.copytree("run", "killed")

    now = [0.0]
    monkeypatch.setattr("marltrain.tools.loggers.wandb_logger.time", SimpleNamespace(monotonic=lambda: now[0]))
    passing = mt.LambdaCallback(on_update_start=lambda moment: now.__setitem__(0, now[0] + 45.0))
    train(mt.WandbLogger(every=0), [Copying(), passing])
    wandb.runs.clear()
    train(mt.WandbLogger(every=0), resume="killed", folder="killed")
    (calls,) = wandb.runs.values()
    logged = [call[1][0] for call in calls if call[0] == "log"]
    found = [(row["env_steps"], row["train/updates"]) for row in logged if "train/updates" in row]
    assert found == [(step, step / 12) for step in range(24, 85, 12)], "that of step 12 is 90 s old"
