"""What files of runs may not hold, and the options that give it."""

import json
from typing import Any

import pytest

import marltrain as mt
from marltrain.tools.run_files.limits import options_of
from marltrain.tools.run_files.plan import RunPlan
from marltrain.tools.run_files.reading import read_plan, read_settings
from marltrain.tools.run_files.writing import to_toml, write_settings

RUN = 'env = "marltrain/CartPole-v1"\nalgo = "ppo"\n'


def plan_of(tmp_path, text, given=()):
    (tmp_path / "run.toml").write_text(RUN + text)
    return read_plan(tmp_path / "run.toml", given)


@pytest.mark.parametrize("name", ["address", "name"])
@pytest.mark.parametrize("value", ['"10.0.0.7:6379"', '"auto"', "7", '["x"]', '""'])
def test_a_file_names_no_cluster(tmp_path, name, value):
    table = f"[trainer]\nrunners = 1\n{name} = {value}\n"
    with pytest.raises(mt.ConfigError, match=rf"run\.toml:5: \[trainer\] {name} is .* with --{name}"):
        plan_of(tmp_path, table)
    (tmp_path / "settings.toml").write_text(f"{table}[agents]\n")
    with pytest.raises(mt.ConfigError, match=rf"settings\.toml:3: \[trainer\] {name} is .* with --{name}"):
        read_settings(tmp_path / "settings.toml")
    assert plan_of(tmp_path, table, given=[name]).trainer == {"runners": 1}
    assert read_settings(tmp_path / "settings.toml", [name])["trainer"] == {"runners": 1}


def test_none_is_no_cluster(tmp_path):
    assert plan_of(tmp_path, '[trainer]\naddress = "none"\nname = "none"\nseed = 3\n').trainer == {"seed": 3}


def test_a_config_names_no_cluster(tmp_path):
    agents = mt.make_agents("ppo", "marltrain/CartPole-v1", seed=0, network=mt.MLP((4,)))
    pace: dict[str, Any] = {"steps_per_train": 64, "update_freq": 64, "num_train_envs": 2, "test_freq": None}
    mt.DecentralizedTrainer("marltrain/CartPole-v1", run_dir="run", progress=False, **pace).train(
        agents, [1], plot=False
    )
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    assert read_plan(file).trainer["update_freq"] == 64
    file.write_text(json.dumps({**config, "trainer": {**config["trainer"], "address": "10.0.0.7:6379"}, "given": []}))
    with pytest.raises(mt.ConfigError, match=r"config\.json: address is '10\.0\.0\.7:6379'.* with --address"):
        read_plan(file)
    assert "address" not in read_plan(file, ["address"]).trainer


@pytest.mark.parametrize("place", ["/tmp/x", "../x", "~/x", "C:/x", "a\\\\b", ""])
def test_a_file_names_a_folder_below_the_working_folder(tmp_path, place):
    with pytest.raises(mt.ConfigError, match=r"run\.toml:3: run_dir .* give this one with --run-dir"):
        plan_of(tmp_path, f'run_dir = "{place}"\n')
    assert plan_of(tmp_path, f'run_dir = "{place}"\n', given=["run_dir"]).env == "marltrain/CartPole-v1"


def test_a_folder_below_the_working_folder(tmp_path):
    assert plan_of(tmp_path, 'run_dir = "runs/x"\n').run_dir == "runs/x"


@pytest.mark.parametrize(("kind", "key"), [("CSVLogger", "path"), ("JSONLinesLogger", "path")])
@pytest.mark.parametrize("place", ["/tmp/x.csv", "../x.csv", "~/x.csv", "C:/x.csv", "config.json", ""])
def test_a_file_names_places_in_the_run_only(tmp_path, kind, key, place):
    with pytest.raises(mt.ConfigError, match=rf"run\.toml:5: \[callbacks\] {kind}: '{key}'"):
        plan_of(tmp_path, f'[[callbacks]]\ntype = "{kind}"\n{key} = "{place}"\n')


def test_what_only_options_give_is_a_comment(tmp_path):
    plan = RunPlan("marltrain/CartPole-v1", algo="ppo", run_dir="/abs/x",
                   trainer={"runners": 2, "address": "10.0.0.7:6379", "name": 'a\n[trainer]\n"'})  # fmt: skip
    text = to_toml(plan)
    _, first, *rest = text.splitlines()
    assert first.startswith("# no file holds these options") and "--address 10.0.0.7:6379" in first
    assert first.endswith("--run-dir /abs/x")
    assert not any("address" in line or "run_dir" in line for line in rest)
    (tmp_path / "run.toml").write_text(text)
    again = read_plan(tmp_path / "run.toml")
    assert (again.trainer, again.run_dir) == ({"runners": 2}, None)
    file = write_settings(tmp_path / "settings.toml", {"trainer": plan.trainer, "agents": {}}, comment="found")
    assert read_settings(file) == {"trainer": {"runners": 2}, "agents": {}}
    assert options_of({"seed": 1}, "runs/x") == ""
