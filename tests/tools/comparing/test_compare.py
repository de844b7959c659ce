import base64
import re

import numpy as np
import pytest
from rliable import library, metrics

import marltrain as mt
from marltrain.cli import main
from tests.tools.runs import write_run

FIRST = {"ppo": [3.0, 5, 4, 9, 1], "dqn": [2.0, 2, 6, 1, 0]}
OTHER = "marltrain/Acrobot-v1"


def write(folder, *, env="marltrain/CartPole-v1", scores=FIRST, **config):
    """Write a run for each score: its tests have the values 0, 10, score."""
    for algo, values in scores.items():
        for seed, value in enumerate(values):
            place = folder / f"{algo}-{env.rpartition('/')[2]}-{seed}"
            write_run(place, [0, 10, value], seed=seed, env=env, algo=algo, **config)
    return folder


def test_numbers_of_rliable_by_hand(tmp_path):
    found = mt.compare([write(tmp_path)], resamples=200)
    ppo, dqn = (np.array(FIRST[name])[:, None] for name in ("ppo", "dqn"))
    assert np.array_equal(found.scores["ppo"], ppo)
    np.random.seed(0)
    iqm, interval = library.get_interval_estimates(
        {"ppo": ppo}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=200
    )
    row = found.table.set_index("group").loc["ppo"]
    assert [row["iqm"], row["low"], row["high"]] == pytest.approx([iqm["ppo"][0], *interval["ppo"][:, 0]])
    assert (row["iqm"], row["median"], row["mean"], row["env_steps"]) == (4.0, 4.0, 4.4, 200)  # of 3, 4, 5
    np.random.seed(0)
    chance, interval = library.get_interval_estimates(
        {"pair": (dqn, ppo)}, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=200
    )
    (pair,) = found.pairs.to_dict("records")
    assert (pair["first"], pair["second"], pair["verdict"]) == ("dqn", "ppo", "no difference shown")
    assert pair["probability"] == pytest.approx(chance["pair"][0]) == pytest.approx(6.5 / 25)
    assert [pair["probability_low"], pair["probability_high"]] == pytest.approx(interval["pair"][:, 0])
    thresholds = found.profiles["threshold"].to_numpy()[:101]
    np.random.seed(0)
    shares, bands = library.create_performance_profile({"dqn": dqn}, thresholds, reps=200)
    ours = found.profiles[found.profiles["group"] == "dqn"]
    np.testing.assert_allclose(ours["share"], shares["dqn"])
    np.testing.assert_allclose([ours["low"], ours["high"]], bands["dqn"])
    curve = found.curves[found.curves["group"] == "ppo"]
    assert curve["env_steps"].tolist() == [0, 100, 200]
    assert curve["iqm"].tolist() == [0, 10, 4]


@pytest.mark.parametrize(("score", "expected"), [("last", 3.0), ("best", 10.0), ("mean", 13 / 3)])
def test_score_of_a_run(tmp_path, score, expected):
    assert mt.compare([write(tmp_path)], score=score, resamples=5).scores["ppo"][0, 0] == pytest.approx(expected)


def test_runs_of_one_reward_metric_are_compared(tmp_path):
    code = "0123456789ab"
    write(tmp_path, scores={"ppo": FIRST["ppo"]}, reward_metric={"name": "<lambda>", "code": code})
    write(tmp_path, scores={"dqn": FIRST["dqn"]}, reward_metric={"name": "score", "code": code})
    assert mt.compare([tmp_path], resamples=5).metric in [
        f"reward_metric {n} (code 01234567)" for n in ("<lambda>", "score")
    ]


def test_another_column_of_the_tests(tmp_path):
    found = mt.compare([write(tmp_path)], metric="return/player_0", resamples=5)
    assert found.scores["ppo"][:, 0].tolist() == [6, 10, 8, 18, 2]
    assert found.metric == "return/player_0"


def test_several_environments_are_normalized(tmp_path):
    write(tmp_path)
    write(tmp_path, env=OTHER, scores={name: [-100 * v for v in values] for name, values in FIRST.items()})
    with pytest.raises(mt.ConfigError, match=r"runs of different environments, .* different units"):
        mt.compare([tmp_path], resamples=5)
    found = mt.compare([tmp_path], ranges={"marltrain/CartPole-v1": (0, 10), OTHER: (-1000, 0)}, resamples=50)
    assert list(found.groups) == ["dqn", "ppo"]
    at = list(found.groups["ppo"]).index(OTHER)
    assert found.scores["ppo"][:, at].tolist() == pytest.approx([0.7, 0.5, 0.6, 0.1, 0.9])
    assert found.scores["ppo"][:, 1 - at].tolist() == pytest.approx([0.3, 0.5, 0.4, 0.9, 0.1])
    table = found.table[found.table["group"] == "ppo"]
    assert table["environment"].tolist() == ["all", *found.groups["ppo"]]
    assert table["optimality_gap"].iloc[0] == pytest.approx(0.5)
    assert table["runs"].tolist() == [10, 5, 5]


def test_groups_differ_in_settings_or_have_names(tmp_path):
    runs = [write(tmp_path / f"{envs}", scores={"ppo": FIRST["ppo"]}, trainer={"num_train_envs": envs})
            for envs in (4, 8)]  # fmt: skip
    assert list(mt.compare(runs, resamples=5).groups) == ["ppo (num_train_envs 4)", "ppo (num_train_envs 8)"]
    named = mt.compare({"few": runs[:1], "many": runs[1:]}, resamples=5)
    assert list(named.groups) == ["few", "many"]
    with pytest.raises(mt.ConfigError, match="is in two groups, 'few' and 'again'"):
        mt.compare({"few": runs[:1], "again": runs[:1]}, resamples=5)


def refused(folder, **arguments):
    with pytest.raises(mt.ConfigError) as caught:
        mt.compare([folder], **{"resamples": 5, **arguments})
    return str(caught.value)


def test_runs_that_cannot_be_compared(tmp_path):
    few = write(tmp_path / "few", scores={"ppo": [1.0, 2.0]})
    assert "group 'ppo' has 2 run(s) of marltrain/CartPole-v1, and a comparison needs at least 3" in refused(few)
    write_run(few / "again", [1, 2, 3], seed=1)
    assert "group 'ppo' holds seed 1 twice" in refused(few)
    others = write(tmp_path / "others")
    write(others, env=OTHER, scores={"dqn": FIRST["dqn"]})
    scale = {"ranges": (0, 10)}
    assert "group 'ppo' has no run of marltrain/Acrobot-v1" in refused(others, **scale)
    write(others, env=OTHER, scores={"ppo": [1.0, 2, 3]})
    assert "group 'ppo' has 3 of marltrain/Acrobot-v1, 5 of marltrain/CartPole-v1" in refused(others, **scale)
    judged = write(tmp_path / "judged")
    write_run(judged / "x", [0, 1], seed=9, judged=["player_0", "player_1"])
    assert "runs of different metrics" in refused(judged)
    code = {"name": "score", "code": "0123456789ab"}
    own = write(tmp_path / "own", reward_metric=code)
    write_run(own / "x", [0, 1], seed=9, reward_metric={**code, "code": "ab"})
    assert "own/dqn-CartPole-v1-0 measures reward_metric score (code 01234567)" in refused(own)
    assert "own/x measures reward_metric score (code ab). Name a column that both tables" in refused(own)
    empty = write(tmp_path / "empty")
    write_run(empty / "x", [], seed=9)
    assert "no test has a value of 'metric'" in refused(empty)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"score": "lats"}, "Did you mean 'last'"),
        ({"metric": "metrik"}, "Did you mean 'metric'"),
        ({"metric": "judged"}, "holds no numbers"),
        ({"resamples": 0}, "at least 1"),
        ({"ranges": (1, 1)}, r"low < high"),
        ({"ranges": {"CartPole": (0, 1)}}, "no run is of it"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, words):
    with pytest.raises(mt.ConfigError, match=words):
        mt.compare([write(tmp_path)], **arguments)


def test_runs_of_different_length_are_told(tmp_path):
    write(tmp_path)
    write_run(tmp_path / "short", [0, 10], seed=7)
    with pytest.warns(UserWarning, match=r"between 100 \(.*short\) and 200 env steps"):
        mt.compare([tmp_path], resamples=5)


def _report(groups, path):
    mt.compare(groups, resamples=20, out=path)
    return path.read_text()


def test_report_is_one_file(tmp_path):
    scores = {f"<algo {i}>": [1.0, 2, 3 + i] for i in range(2)}
    groups = {
        name: [write_run(tmp_path / f"{i}-{s}", [0, v], seed=s) for s, v in enumerate(values)]
        for i, (name, values) in enumerate(scores.items())
    }
    page = _report(groups, tmp_path / "out.html")
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert [base64.b64decode(data)[1:4] for data in pictures] == [b"PNG"] * 4
    assert page.count("src=") == 4
    assert not re.search(r"href=|<script|@import|url\(|https?://", page)
    assert '<td class="text">&lt;algo 1&gt;</td>' in page
    assert "<algo" not in page


def test_command(tmp_path, capsys, monkeypatch):
    write(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "runs", "--resamples", "20"]) == 0
    out = capsys.readouterr().out
    assert "dqn: runs/dqn-CartPole-v1-0, runs/dqn-CartPole-v1-1" in out
    assert re.search(r"^ppo +marltrain/CartPole-v1 +5 +200 +4.00 ", out, re.MULTILINE)
    assert (tmp_path / "comparison.html").is_file()
    ppo = ",".join(f"runs/ppo-CartPole-v1-{seed}" for seed in range(4))
    words = ["--group", f"mine={ppo}", "--range", "0,10", "--out", "x.html", "--resamples", "20"]
    assert main(["compare", *words]) == 0
    assert re.search(r"^mine .* 4 +200 +0.45 ", capsys.readouterr().out, re.MULTILINE)
    assert main(["compare", "runs", "--group", "a=b"]) == 2
    assert main(["compare", "--group", "a"]) == 2
    assert main(["compare", "runs", "--range", "low,high"]) == 2
    assert main(["compare"]) == 2
    assert "--group takes NAME=RUN,RUN, got 'a'" in capsys.readouterr().err


def test_missing_rliable_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rliable.library", None)
    with pytest.raises(mt.ConfigError, match=r'pip install "marltrain\[compare\]"'):
        mt.compare([write(tmp_path)])
