import json

from marltrain.tools.doctor.report import CORE, EXTRA, HERE, Fact, Finding, Report, Section

TORCH = Finding(CORE, "torch", "cannot be imported: no libc", "pip install torch")
RAY = Finding(EXTRA, "ray", "version 2 is installed", "pip install ray")
FOLDER = Finding(HERE, "runs folder", "/runs takes no file", "cd")
FAILED = Finding(CORE, "training", "ImportError: torch", "mend the above first: torch")


def report(*findings, failure=None):
    facts = [Fact("numpy", "2.4"), Fact("free", 1024, "1.0 KiB"), Fact("token", None)]
    return Report([Section("the packages", facts), Section("others", [], findings)], failure, ("marltrain 1", "x86"))


def test_a_training_that_works_has_warnings_only():
    found = report(TORCH, RAY)
    assert (found.problems, found.warnings) == ([], [TORCH, RAY])
    assert found.line() == "marltrain 1 | x86 | training works | warnings: torch, ray"
    assert report().line() == "marltrain 1 | x86 | training works"


def test_a_training_that_fails_makes_problems_of_what_it_may_need():
    found = report(TORCH, RAY, failure=FAILED)
    assert (found.problems, found.warnings) == ([TORCH, FAILED], [RAY])
    assert found.line() == "marltrain 1 | x86 | 2 problems: torch, training | warnings: ray"


def test_a_folder_in_which_training_cannot_write_is_a_problem_by_itself():
    found = report(FOLDER)
    assert found.problems == [FOLDER]
    assert found.line() == "marltrain 1 | x86 | 1 problem: runs folder"


def test_the_text_ends_with_the_line():
    lines = report(TORCH, RAY, failure=FAILED).text().splitlines()
    assert lines[:4] == [
        "the packages", "  numpy                 2.4", "  free                  1.0 KiB",
        "  token                 none",
    ]  # fmt: skip
    assert lines[7:] == [
        "problem: torch: cannot be imported: no libc", "  remedy: pip install torch",
        "problem: training: ImportError: torch", "  remedy: mend the above first: torch", "",
        "warning: ray: version 2 is installed", "  remedy: pip install ray", "",
        "training does not work here: see above", "", "For the report of a bug:",
        "marltrain 1 | x86 | 2 problems: torch, training | warnings: ray",
    ]  # fmt: skip


def test_json_holds_values_and_findings():
    found = json.loads(json.dumps(report(RAY, failure=FAILED).described()))
    assert found == {
        "format": 1, "works": False, "line": "marltrain 1 | x86 | 1 problem: training | warnings: ray",
        "problems": [{"subject": "training", "cause": "ImportError: torch", "remedy": "mend the above first: torch"}],
        "warnings": [{"subject": "ray", "cause": "version 2 is installed", "remedy": "pip install ray"}],
        "the_packages": {"numpy": "2.4", "free": 1024, "token": None}, "others": {},
    }  # fmt: skip
