import json
import logging
from pathlib import Path
from typing import Any

import pytest

from marltrain.core.errors import SaveError
from marltrain.trainer.reporting.history import TESTS_FILE
from marltrain.trainer.reporting.plots import plot_runs
from marltrain.trainer.reporting.run_groups import config_of, found, kinds, name_of, with_tests
from tests.trainer.reporting.test_plots import written


def config(rate=0.1, **changed):
    agent = {"type": "ppo", "seed": 3, "settings": {"learning_rate": rate, "epochs": 4}}
    seats = [{"player": name, "agent": agent, "learns": True} for name in ("a", "b")]
    return {"algo": "ppo", "env": "mpe2/simple_v3", "seats": seats, "trainer": {"update_freq": 10}, **changed}


def run_of(path, **told):
    path.mkdir(parents=True)
    (path / TESTS_FILE).touch()
    (path / "config.json").write_text(json.dumps(config(**told)))
    return path


def test_folder_of_runs_is_expanded_to_its_runs(tmp_path):
    runs = [run_of(tmp_path / "runs" / name) for name in ("b", "a", "more/c")]
    (tmp_path / "runs" / "notes").mkdir()
    inside = found([tmp_path / "runs", runs[1]])
    assert inside == [runs[1], runs[0], runs[2]]
    assert found([runs[0]]) == [runs[0]]
    with pytest.raises(SaveError, match="notes: is not a run's folder"):
        found([tmp_path / "runs" / "notes"])


def test_runs_without_tests_are_omitted_and_logged(tmp_path, caplog):
    runs = [written(tmp_path / "runs" / "full"), written(tmp_path / "runs" / "empty", tests=0)]
    with caplog.at_level(logging.WARNING, "marltrain"):
        assert with_tests(runs) == runs[:1]
    assert "empty holds no test" in caplog.text
    assert plot_runs([tmp_path / "runs"], out=tmp_path / "runs.png") == Path(tmp_path / "runs.png")


def test_groups_are_named_by_their_differing_settings(tmp_path):
    """Runs that differ only in the seed are one group; settings common to all groups are not part of the name."""
    data: list[Any] = [{"seed": 0}, {"seed": 1}, {"rate": 0.2}, {"env": "mpe2/simple_tag_v3"}]
    runs = [run_of(tmp_path / str(i), **kind) for i, kind in enumerate(data)]
    assert {kind.name: list(kind.runs) for kind in kinds(runs)} == {
        "ppo on mpe2/simple_v3 (lr 0.1)": runs[:2],
        "ppo on mpe2/simple_v3 (lr 0.2)": runs[2:3],
        "ppo on mpe2/simple_tag_v3": runs[3:],
    }


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("spread-20250101-120000", "spread"),
        ("spread-seed3", "spread"),
        ("spread_7", "spread"),
        ("spread", "spread"),
        ("simple_spread_v3-20250101-120000-2", "simple_spread_v3"),
        ("20250101", "20250101"),
    ],
)
def test_run_without_config_json_is_named_by_its_folder(tmp_path, name, group):
    assert name_of(tmp_path / name, config_of(tmp_path / name)) == (group, "")


def test_run_is_named_by_its_config_json(tmp_path):
    run = run_of(tmp_path / "x")
    assert name_of(run, config_of(run)) == ("ppo", "mpe2/simple_v3")
