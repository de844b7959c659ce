"""TOML of runs: what is read, and errors with the file, the table and the line."""

from __future__ import annotations

from typing import Any

import pytest

import marltrain as mt
from marltrain.tools.run_files.reading import read_plan, read_settings
from marltrain.tools.run_files.writing import to_toml, write_settings

RUN = """
env = "mpe2/simple_tag_v3"
team_reward = "mean"
weights = "runs/earlier/best"

[env_args]
max_cycles = 10

[trainer]
steps_per_train = 1_000
num_train_envs = 3
max_test_steps = "none"

[agents]
gamma = 0.95
network = "MLP((16,))"

[players."adversary_*"]
algo = "dqn"
epsilon = "linear(1, 0.1, 500)"
memory = "Replay(prioritized=Prioritized())"

[players.agent_0]
algo = "ppo"
learns = false
explores = false

[[callbacks]]
type = "EarlyStopping"
patience = 3

[[callbacks]]
type = "Adapt"
name = "learning_rate"
by = "kl"
low = 1e-5
high = 1e-2
target = 0.02
direction = "down"
"""


def read(tmp_path, text):
    (tmp_path / "run.toml").write_text(text)
    return read_plan(tmp_path / "run.toml")


def test_a_file_is_read_and_written(tmp_path):
    plan = read(tmp_path, RUN)
    assert plan.env == "mpe2/simple_tag_v3" and plan.env_args == {"max_cycles": 10} and plan.team_reward == "mean"
    assert plan.trainer == {"steps_per_train": 1_000, "num_train_envs": 3, "max_test_steps": None}
    assert plan.settings == {"gamma": 0.95, "network": mt.MLP((16,))}
    hunters, prey = plan.players["adversary_*"], plan.players["agent_0"]
    assert hunters.settings["epsilon"] == mt.linear(1, 0.1, 500) and hunters.learns is None and hunters.explores
    assert hunters.settings["memory"] == mt.Replay(prioritized=mt.Prioritized())
    assert (prey.algo, prey.learns, prey.explores) == ("ppo", False, False)
    stop, adapt = plan.callbacks
    assert isinstance(stop, mt.EarlyStopping) and isinstance(adapt, mt.Adapt)
    again = read(tmp_path, to_toml(plan))
    assert {**vars(again), "callbacks": ()} == {**vars(plan), "callbacks": ()}
    assert [callback.settings for callback in again.callbacks] == [stop.settings, adapt.settings]


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        ("num_train_envs", "num_train_env", 11, r"\[trainer\] there is no setting 'num_train_env'. Did you mean"),
        ("gamma = 0.95", "gama = 0.95", 15, r"\[agents\] there is no setting 'gama'. Did you mean 'gamma'"),
        (
            "max_test_steps =",
            "epochs =",
            12,
            r"\[trainer\] there is no setting 'epochs'. It belongs into .* \[agents\]",
        ),
        ("epsilon =", "epsilom =", 20, r"\[players.adversary_\*\] there is no setting 'epsilom'. Did you mean"),
        ('algo = "ppo"', 'algo = "pop"', 24, r"\[players.agent_0\] no algorithm is called 'pop'. Did you mean 'ppo'"),
        ("MLP((16,))", "MPL((16,))", 16, r"\[agents\] network: .* there is no 'MPL'. Did you mean 'MLP'"),
        ("learns = false", "learns = 0", 25, r"\[players.agent_0\] learns must be true or false, got 0"),
        ('"EarlyStopping"', '"EarlyStoping"', 29, r"\[callbacks\] type must be one of .* Did you mean 'EarlyStopping'"),
        ("patience = 3", "patienc = 3", 30, r"\[callbacks\] EarlyStopping has no argument 'patienc'. Did you mean"),
        ("low = 1e-5", "lowest = 1e-5", 36, r"\[callbacks\] Adapt has no argument 'lowest'. Did you mean 'low'"),
        ("team_reward =", "team_rewards =", 3, r"there is no key 'team_rewards'. Did you mean 'team_reward'"),
        ('"mpe2/simple_tag_v3"', "7", 2, "env must be text, got 7"),
        ("[trainer]", "[training]", 9, "there is no key 'training'. Did you mean 'trainer'"),
        ("gamma = 0.95", "gamma = ", None, "not TOML: .* line 15"),
    ],
)
def test_errors_name_file_table_and_line(tmp_path, before, after, line, message):
    assert before in RUN
    with pytest.raises(mt.ConfigError, match=message) as caught:
        read(tmp_path, RUN.replace(before, after))
    place = f"{tmp_path / 'run.toml'}:" + ("" if line is None else f"{line}:")
    assert str(caught.value).startswith(place)


def test_one_algorithm_or_tables_of_players(tmp_path):
    for text in ('env = "x/y"\n', RUN.replace("[env_args]", 'algo = "ppo"\n[env_args]')):
        with pytest.raises(mt.ConfigError, match="give one algorithm for all players"):
            read(tmp_path, text)
    with pytest.raises(mt.ConfigError, match="no file may choose what code is run"):
        read(tmp_path, 'env = "x/y"\nalgo = "mine:Agent"\n')
    with pytest.raises(mt.SaveError, match=r"none\.toml: cannot be read"):
        read_plan(tmp_path / "none.toml")


def test_settings_survive_their_file(tmp_path):
    settings: dict[str, dict[str, Any]] = {
        "trainer": {"steps_per_train": 24, "test_freq_steps": None, "resources": {"num_cpus": 1}},
        "agents": {
            "max_grad_norm": None,
            "memory": mt.Prioritized(),
            "network": mt.MLP((5, 3)),
            "learning_rate": mt.linear(0.1, 0.2, 9),
        },
    }
    path = write_settings(tmp_path / "a.toml", {**settings, "evaluation": {"metric": 1.5}}, comment="of a study")
    assert path.read_text().startswith(f"# marltrain {mt.__version__}\n# of a study\n\n[trainer]")
    assert read_settings(path) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[trainer]\nlr = 1\n[agents]\n", r"a.toml:2: \[trainer\] there is no setting 'lr'"),
        ("[trainer]\n[agents]\n[agent]\n", "there is no table 'agent'"),
        ("[agents]\n", r"has the tables \[trainer\] and \[agents\]"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, text, message):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(mt.ConfigError, match=message):
        read_settings(tmp_path / "a.toml")


@pytest.mark.parametrize(
    "table",
    ["[env_args]\n" + ".".join(["a"] * 5_000) + " = 1\n", "[env_args]\na = " + "[" * 5_000 + "]" * 5_000,
     "[" + ".".join(["agents"] + ["a"] * 5_000) + "]\nb = 1\n", "[agents]\ngamma = " + "9" * 5_000],
    ids=["keys", "lists", "tables", "digits"],
)  # fmt: skip
def test_a_file_that_is_nested_too_deeply(tmp_path, table):
    (tmp_path / "run.toml").write_text(f'env = "marltrain/CartPole-v1"\nalgo = "ppo"\n{table}')
    with pytest.raises(mt.ConfigError) as error:
        read_plan(tmp_path / "run.toml")
    assert len(str(error.value)) < 1000
