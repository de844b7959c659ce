"""The folder of a search: begun, locked, resumed, damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from marltrain.core.errors import AgentError, ConfigError, SaveError
from marltrain.core.remedies import on_command_line
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.storage.files import with_checksum
from marltrain.tools.search import saved_search
from marltrain.tools.search.saved_search import Search, search_in
from marltrain.tools.search.training import Reading, Training
from tests.trainer.running import Student, ppo

ABOUT = {"tool": "t", "steps": 10, "space": {"gamma": (0.5, 0.9)}}


def trainings(count=3, make=lambda: [RandomAgent(seed=0)]):
    result = [Training(c, c, make) for c in range(count)]
    for one in result:
        one.begin()
    return result


def measured(training: Training) -> Training:
    training.readings = [Reading(0, 1.5, {}), Reading(10, float("inf"), {"loss/total": 0.25})]
    return training


@pytest.fixture
def begun(tmp_path) -> Path:
    """A search of three trainings, of which the second one has ended."""
    with pytest.raises(KeyboardInterrupt), search_in(tmp_path / "s", ABOUT) as search:
        result = trainings()
        search.begin(result)
        search.end([measured(result[1])])
        raise KeyboardInterrupt
    return tmp_path / "s"


def test_trainings_that_have_ended_get_their_outcomes(begun, caplog):
    with search_in(begun, ABOUT) as search:
        result = trainings()
        assert search.begin(result) == [] and [search.has_ended(one) for one in result] == [False, True, False]
        assert result[1].readings == [Reading(0, 1.5, {}), Reading(10, float("inf"), {"loss/total": 0.25})]
        assert not result[0].readings and not result[1].error and not result[1].stopped
        assert search.run_dir(None) == begun / "together" and search.run_dir(result[2]) == begun / "alone-2"
    assert "the search goes on: 1 of 3 trainings have ended" in caplog.text


def test_a_search_without_a_folder_keeps_nothing(tmp_path):
    with search_in(None, ABOUT) as search:
        result = trainings()
        search.end([measured(result[0])])
        assert search.begin(result) == [] and not search.has_ended(result[0]) and search.run_dir(None) is None
        assert type(search) is Search
    assert not list(tmp_path.iterdir())


def test_trainings_that_are_repeated_alone_are_known_afterwards(tmp_path):
    """The second one was stopped before the others failed with it."""
    with pytest.raises(KeyboardInterrupt), search_in(tmp_path / "s", ABOUT) as search:
        result = trainings()
        search.begin(result)
        result[1].error, result[1].stopped = "not finite", True
        search.end([result[1]], [result[0], result[2]])
        search.end([measured(result[0])])
        raise KeyboardInterrupt
    with search_in(tmp_path / "s", ABOUT) as search:
        result = trainings()
        assert search.begin(result) == [result[0], result[2]]
        assert [search.has_ended(one) for one in result] == [True, True, False] and result[1].error == "not finite"


def test_what_a_killed_run_has_left_is_removed(begun):
    """No checkpoint is complete there; nor is a file of the search that was under way."""
    rest = begun / "together" / "checkpoints" / ".36.part"
    rest.mkdir(parents=True)
    (begun / ".search.0a.part.json").write_text("{")
    with search_in(begun, ABOUT) as search:
        search.begin(trainings())
        assert search.run_dir(None) == begun / "together" and not rest.exists()
        assert sorted(path.name for path in begun.iterdir()) == ["run.lock", "search.json"]


def test_a_search_that_was_killed_before_its_first_file_is_begun(tmp_path):
    (tmp_path / "run.lock").write_text("process 1 on x")
    (tmp_path / ".search.0a.part.json").write_text("{")
    with search_in(tmp_path, ABOUT) as search:
        search.begin(trainings())
    assert [path.name for path in tmp_path.iterdir()] == ["search.json"]


def test_a_search_that_fails_before_it_has_begun_leaves_no_files(tmp_path):
    with pytest.raises(ConfigError), search_in(tmp_path / "new" / "s", ABOUT) as search:
        search.begin(trainings())
        raise ConfigError("update_freq")
    assert not (tmp_path / "new" / "s").exists()
    empty = tmp_path / "new"
    with pytest.raises(AgentError, match="a Student defines no state"), search_in(empty, ABOUT) as search:
        search.begin(trainings(make=lambda: [Student(lambda row: 0)]))
    assert not list(empty.iterdir())


def test_the_folder_of_a_search_that_has_begun_stays_after_an_error(begun):
    with pytest.raises(ConfigError), search_in(begun, ABOUT) as search:
        search.begin(trainings())
        raise ConfigError("of the watcher")
    assert (begun / "search.json").exists()


def test_a_folder_in_use_is_refused(begun):
    with search_in(begun, ABOUT) as search:
        search.begin(trainings())
        with pytest.raises(ConfigError, match="is in use by process"), search_in(begun, ABOUT):
            pass


@pytest.mark.parametrize(
    ("resume", "told"),
    [
        (7, "resume must be a path, got 7"),
        ("sqlite:///x.db", "resume must be a folder, got 'sqlite:///x.db': only studies of trials are in databases"),
        ("other", "is not the folder of a search: it holds 'config.json', and no search.json. Instead, name another"),
    ],
)
def test_other_places_are_refused(tmp_path, monkeypatch, resume, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").touch()
    with pytest.raises(ConfigError, match=told), search_in(resume, ABOUT):
        pass
    assert [path.name for path in tmp_path.glob("**/*")] == ["other", "config.json"]


def test_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SaveError, match="file: cannot be written"), search_in(tmp_path / "file", ABOUT):
        pass


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({**ABOUT, "steps": 11}, "steps is 11, and was 10"),
        ({**ABOUT, "space": {"gamma": (0.5, 0.8)}}, r"space.gamma\[1\] is 0.8, and was 0.9"),
        ({**ABOUT, "space": {}}, "space.gamma is given only there"),
        ({**ABOUT, "seed": 3}, "seed is given only now"),
    ],
)
def test_another_search_is_refused_with_the_remedy_of_the_place(begun, about, told):
    whole = f"holds a search with other settings: {told}. Repeat the arguments of the search, or name another folder: "
    with pytest.raises(ConfigError, match=f"{whole}resume="), search_in(begun, about):
        pass
    with on_command_line(), pytest.raises(ConfigError, match=f"{whole}--storage FOLDER"), search_in(begun, about):
        pass


def test_another_number_of_threads_is_refused_unless_the_search_is_finished(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt), search_in(tmp_path / "s", ABOUT) as search:
        search.begin(trainings(make=ppo))
        raise KeyboardInterrupt
    counted = {"torch": json.loads((tmp_path / "s" / "search.json").read_text())["threads"]["torch"] + 1}
    monkeypatch.setattr(saved_search, "threads", lambda agents: counted)
    text = f"begun with {counted['torch'] - 1} threads of torch, and there are {counted['torch']}.*OMP_NUM_THREADS="
    with pytest.raises(ConfigError, match=text), search_in(tmp_path / "s", ABOUT) as search:
        search.begin(trainings(make=ppo))
    monkeypatch.undo()
    with search_in(tmp_path / "s", ABOUT) as search:
        result = trainings(make=ppo)
        search.begin(result)
        search.end([measured(one) for one in result])
    monkeypatch.setattr(saved_search, "threads", lambda agents: counted)
    with search_in(tmp_path / "s", ABOUT) as search:
        search.begin(trainings(make=ppo))


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: text.replace("10", "11", 1), lambda text: "[]"]
)
def test_a_damaged_file_is_refused(begun, damage):
    file = begun / "search.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(SaveError, match=r"search\.json: "), search_in(begun, ABOUT):
        pass


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"format": "marltrain-run"}, "does not describe a search: its format is not 'marltrain-search'"),
        ({"schema": 2}, "schema 2, written by marltrain .* reads schema 1. Go on with marltrain .*, or name another"),
        ({"more": 1}, "keys missing or unknown: more"),
        ({"ended": []}, "'ended' must be of type dict, got"),
        ({"ended": {"3": {}}}, "the number of a training must be from 0 to 2, got 3"),
        ({"ended": {"x": {}}}, "cannot be resumed: ValueError"),
        ({"ended": {"0": {"readings": []}}}, "an outcome must hold readings, error and stopped, got readings"),
        ({"ended": {"0": {"readings": [[0, {"float": "x"}, {}]], "error": "", "stopped": False}}}, "ValueError"),
        ({"repeated": [4]}, "repeated must be from 0 to 2, got 4"),
        ({"repeated": [True]}, "repeated must be of type int"),
        ({"finished": True}, "it is finished, and the outcome of a training is missing"),
    ],
)
def test_a_forged_file_is_refused(begun, changes, told):
    file = begun / "search.json"
    file.write_text(json.dumps(with_checksum({**json.loads(file.read_text()), **changes})))
    with pytest.raises(SaveError, match=told), search_in(begun, ABOUT) as search:
        search.begin(trainings())


def test_a_link_out_of_the_folder_is_not_followed(begun, tmp_path):
    """Remains of runs are removed, but not what a link leads to."""
    kept: Any = tmp_path / "kept"
    kept.mkdir()
    (kept / "a.txt").touch()
    (begun / "together").symlink_to(kept)
    with search_in(begun, ABOUT) as search:
        search.begin(trainings())
        with pytest.raises(SaveError, match="together: cannot be written"):
            search.run_dir(None)
        (begun / "together").unlink()
    assert (kept / "a.txt").exists()
