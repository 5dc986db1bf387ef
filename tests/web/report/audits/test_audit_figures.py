"""The figures of an audit: their numbers by hand, and drawings that are well-formed."""

from pathlib import Path

import pytest

from boxmend.web.charts import standalone
from boxmend.web.report.audits.figures import AUDIT_FIGURES, probe, rates, yields
from boxmend.web.report.figure_files import figure_csv
from boxmend.web.report.figures import FIGURES
from tests.web.report.audits.audited_folders import RECORDED, made_audit, record_of, share
from tests.web.report.read_drawings import found, numbers, parsed, texts


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_audit(tmp_path)


@pytest.mark.parametrize("name", AUDIT_FIGURES)
def test_a_figure_is_well_formed_and_its_rows_are_as_wide_as_its_columns(
    run: Path, name: str
) -> None:
    figure = AUDIT_FIGURES[name](record_of(run))
    assert figure is not None
    assert figure.name == name
    assert figure.caption.endswith(".")
    assert all(len(row) == len(figure.columns) for row in figure.rows)
    width, height = map(float, parsed(figure.svg).attrib["viewBox"].split()[2:])
    for text in found(figure.svg, "text"):
        assert float(text.attrib["font-size"]) * 640 / width >= 11
        assert 0 <= float(text.attrib["x"]) <= width
        assert 0 <= float(text.attrib["y"]) <= height
    parsed(standalone(figure.svg))
    assert figure_csv(figure).startswith(figure.columns[0].encode())


def test_no_figure_has_the_name_of_one_of_a_training_run() -> None:
    assert not set(AUDIT_FIGURES) & set(FIGURES)


def test_rates_are_drawn_with_their_intervals(run: Path) -> None:
    figure = rates(record_of(run))
    assert figure is not None
    assert figure.rows[0] == ("wrong labels", 0.25, 0.125, 0.375)
    assert len(figure.rows) == 5
    assert "25.0 % (12.5\u201337.5)" in texts(figure.svg)
    assert figure.caption.startswith("The most frequent error is wrong labels: 25.0 %")
    lines = found(figure.svg, "line", "series-1")
    first, dot = lines[0], found(figure.svg, "circle", "series-1")[0]
    x1, x2 = numbers(first, "x1", "x2")
    assert numbers(dot, "cx") == [pytest.approx((x1 + x2) / 2, abs=0.02)]


def test_yields_are_bars_as_long_as_their_numbers(run: Path) -> None:
    figure = yields(record_of(run))
    assert figure is not None
    assert [row[-1] for row in figure.rows] == [3, 4, 5, 7]
    assert figure.columns == (
        *("precision", "wrong label", "bad box", "missing", "spurious", "duplicate", "in all"),
    )
    assert figure.rows[0] == (0.95, 2, 1, 0, 0, 0, 3)
    widths = [numbers(bar, "width")[0] for bar in found(figure.svg, "rect", "series-1")]
    assert [width / widths[-1] for width in widths] == pytest.approx(
        [3 / 7, 4 / 7, 5 / 7, 1], abs=1e-3
    )
    assert "A precision of 0.95 applies 3 of 8 fixes, one of 0.7 applies 7." in figure.caption


def test_the_probe_shows_what_was_found_and_fixed(run: Path) -> None:
    figure = probe(record_of(run))
    assert figure is not None
    assert figure.rows == [
        ("wrong label", "all", 40, 30, 15, 0.75, 0.6, 0.85, 0.5, 0.33, 0.67),
        ("wrong label", "any other class", 25, 25, 10, 1.0, 0.87, 1.0, 0.4, 0.23, 0.59),
        (
            *("wrong label", "a class that <b>looks alike", 15, 5, 5),
            *(0.333, 0.15, 0.58, 1.0, 0.57, 1.0),
        ),
        ("missing", "all", 40, 0, 0, 0.0, 0.0, 0.09, None, None, None),
    ]
    # The legend has one of each; nothing of the missing ones was found, so nothing was fixed.
    assert len(found(figure.svg, "circle", "series-1")) == 1 + 2
    assert len(found(figure.svg, "circle", "series-2")) == 1 + 1
    assert "Of 80 errors that the audit planted to test itself, it found 30" in figure.caption


def test_figures_without_numbers_are_left_out(tmp_path: Path) -> None:
    record = record_of(made_audit(tmp_path, [], {}))
    assert [draw(record) for draw in AUDIT_FIGURES.values()] == [None, None, None]
    record = record_of(made_audit(tmp_path / "zero", recorded={"probe": {}}))
    assert probe(record) is None
    assert rates(record) is None


def test_rates_above_any_axis_stay_on_the_sheet(tmp_path: Path) -> None:
    wide = {"rates": {"wrong_labels": share(0.9, 0.8, 1.0)}}
    figure = rates(record_of(made_audit(tmp_path, recorded=RECORDED | wide)))
    assert figure is not None
    x2 = numbers(found(figure.svg, "line", "series-1")[0], "x2")[0]
    assert x2 <= float(parsed(figure.svg).attrib["viewBox"].split()[2])
