"""Texts in CSV files: none is a formula, and all are read back as they were."""

import csv
import itertools

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.tools.csv_cells import cell, read_cell, write_csv
from tests.tools.loggers.test_scalar_files import moment

FORMULAS = ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201", "=", "-")
TEXTS = ("", "a", "a=b", " =1", "'", "''", "'a", "a'=1", "1", "é", "a;b", '"=1"')


@pytest.mark.parametrize("text", [*FORMULAS, *(f"{quotes}{text}" for quotes in ("'", "'''") for text in FORMULAS)])
def test_a_formula_stands_behind_an_apostrophe(text):
    assert cell(text) == f"'{text}"
    assert read_cell(cell(text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_other_texts_are_unchanged(text):
    assert cell(text) == text
    assert read_cell(text) == text


def test_no_two_texts_become_equal():
    texts = ["".join(letters) for n in range(5) for letters in itertools.product("'=a", repeat=n)]
    assert len({cell(text) for text in texts}) == len(texts)
    assert [read_cell(cell(text)) for text in texts] == texts


@pytest.mark.parametrize("value", [-1, -1.5, np.float64(-2), True, None])
def test_numbers_stay_numbers(value):
    assert cell(value) is value


def test_a_table(tmp_path):
    table = pd.DataFrame({"=a": ["@x", "b"], "n": [-1.5, 2.0]}, index=pd.Index(["+p", "q"], name="-name"))
    write_csv(table, tmp_path / "table.csv", index=True)
    with (tmp_path / "table.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["'-name", "'=a", "n"], ["'+p", "'@x", "-1.5"], ["q", "b", "2.0"]]
    write_csv(table, tmp_path / "plain.csv")
    pd.testing.assert_series_equal(
        pd.read_csv(tmp_path / "plain.csv")["n"], table["n"].reset_index(drop=True), check_names=True
    )
    assert list(table.columns) == ["=a", "n"]  # the table itself is as it was


def test_a_logger_reads_its_columns_again(tmp_path):
    """A new column, and a run that is continued, keep the names and the values of all rows."""
    tags = ["=1+1/loss", "'=1+1/loss", "@b", "-c\r\nd", "a,b", 'a"b', "\ttab", "plain"]
    logger = mt.CSVLogger()
    logger.open(moment(tmp_path, 0))
    for i, tag in enumerate(tags):
        logger.write({tag: -float(i)}, 10 * i)
    logger.close()
    again = mt.CSVLogger()
    again.open(moment(tmp_path, 1000))
    again.write({"=1+1/loss": 0.5}, 1010)
    again.close()
    with (tmp_path / "scalars.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert not [name for name in header if name[:1] in tuple("=+-@\t\r\n")]
    assert [read_cell(name) for name in header] == ["env_steps", "time", *tags]
    assert [row[2:].index(str(-float(i))) for i, row in enumerate(rows[:-1])] == list(range(len(tags)))
    assert (rows[-1][0], rows[-1][2]) == ("1010", "0.5")
