"""Figures as files: SVG that stands alone, and CSV that no spreadsheet runs."""

import csv
from math import inf, nan
from pathlib import Path

import pytest

from boxmend.errors import OutputError
from boxmend.web.charts import drawing
from boxmend.web.report.figure_files import figure_csv, write_figures
from boxmend.web.report.record import Figure
from tests.web.report.read_drawings import parsed

ROWS: list[tuple[str | int | float | None, ...]] = [
    ("van", 1_000_000, 0.5),
    ("=cmd()", 2, 1 / 3),
    ("-1+1", -3, -2.5),
    ("a,b\n\"c\"", 4, None),
    ("\ud800", 5, nan),
    ("@x", 6, inf),
]  # fmt: skip


def made_figure() -> Figure:
    svg = drawing("made-up", "Title", "Message", (560, 100), "")
    return Figure("made-up", "Title", "Caption", svg, ("label", "count", "share"), ROWS)


def test_the_csv_has_numbers_as_they_are_and_texts_that_are_no_formulas() -> None:
    lines = list(csv.reader(figure_csv(made_figure()).decode().splitlines(keepends=True)))
    assert lines == [
        ["label", "count", "share"],
        ["van", "1000000", "0.5"],
        ["'=cmd()", "2", "0.333333"],
        ["'-1+1", "-3", "-2.5"],
        ['a,b\n"c"', "4", ""],
        ["\\ud800", "5", ""],
        ["'@x", "6", ""],
    ]


def test_each_figure_becomes_two_files_and_replaces_those_of_before(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "figures"
    paths = write_figures([made_figure()], out)
    assert paths == [out / "made-up.svg", out / "made-up.csv"]
    assert sorted(out.iterdir()) == sorted(paths)
    svg = paths[0].read_text("utf-8")
    assert parsed(svg).get("viewBox") == "0 0 560 100"
    assert svg.startswith('<?xml version="1.0" encoding="UTF-8"?>')
    before = paths[1].read_bytes()
    assert write_figures([made_figure()], out) == paths
    assert paths[1].read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        write_figures([made_figure()], tmp_path / "file")
