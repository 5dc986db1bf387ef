"""Tables as people and programs see them: Markdown, HTML, CSV and JSON."""

import csv
import io
import json
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from boxmend.bench.grids.comparability import find_differences
from boxmend.bench.grids.layouts import LAYOUTS, get_layout
from boxmend.bench.grids.rendering import (
    render_csv,
    render_html,
    render_json,
    render_markdown,
    to_plain,
)
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.statistics import Gain, SeedSummary
from boxmend.bench.grids.table_spec import AVERAGED_WEIGHTS, cell_specs
from boxmend.bench.grids.tables import GridTable, TableEntry, make_table
from boxmend.bench.grids.wording import figure_texts, gain_texts
from tests.bench.grid_results import result, result_of

BOTH = ("symmetric:0.4", "uniform:0.4")
HOSTILE = (
    "=cmd|' /C calc'!A0<script>alert(1)</script>\n| **x** `y` \x1b[31m </style> [a](javascript:b)"
)


def results() -> list[Result]:
    return [
        *(result("baseline", 0.60), result("baseline", 0.70, seed=1)),
        *(result("baseline", 0.40, noise=BOTH), result("baseline", 0.40, noise=BOTH, seed=1)),
        *(result("mend", 0.50, noise=BOTH), result("mend", 0.60, noise=BOTH, seed=1)),
        result("ca-bbc", None, noise=BOTH, error="no memory\nat all"),
        *(result("disco", 0.52, noise=BOTH), result("disco", None, noise=BOTH, seed=1, error="x")),
    ]


def made(**fields: Any) -> GridTable:
    return make_table(
        get_layout("core"), [msgspec.structs.replace(result, **fields) for result in results()]
    )


def lines_of(text: str, start: str) -> list[list[str]]:
    """The cells of the Markdown rows that begin so."""
    rows = [line for line in text.splitlines() if line.startswith(f"| {start} ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_a_square_tells_mean_deviation_seeds_and_what_was_published() -> None:
    square = TableEntry(SeedSummary(0.5512, 0.0123, (0, 1, 2)), paper=0.703)
    assert figure_texts(square).to_line() == "55.1 ± 1.2 (3) [70.3]"
    assert figure_texts(TableEntry(SeedSummary(0.5, None, (4,)))).to_line() == "50.0 (1)"
    assert figure_texts(TableEntry(SeedSummary(0.5, None, (4,)), failed=("a",))).to_line() == (
        "50.0 (1, 1 failed)"
    )
    assert figure_texts(TableEntry(failed=("a",), paper=0.0845)).to_line() == "failed [8.45]"
    assert figure_texts(TableEntry()).to_line() == ""


@pytest.mark.parametrize(
    ("gain", "compare", "text"),
    [
        (Gain(0.643, 0.084, (0, 1), ()), "share", "64 ± 8 (2)"),
        (Gain(-0.001, None, (0,), ()), "share", "0 (1)"),
        (Gain(-0.27, None, (0,), ()), "share", "-27 (1)"),
        (Gain(None, None, (), (0, 1)), "share", "\N{EN DASH}"),
        (Gain(0.0151, 0.0049, (0, 1), ()), "difference", "+1.5 ± 0.5 (2)"),
        (Gain(-0.0004, None, (0,), ()), "difference", "0.0 (1)"),
        (Gain(-0.007, None, (0,), ()), "difference", "-0.7 (1)"),
        (None, "share", ""),
    ],
)
def test_gains_are_shown_in_percent_and_points(gain: Gain | None, compare: str, text: str) -> None:
    assert gain_texts(TableEntry(gain=gain), compare).to_line() == text


def test_the_markdown_shows_figures_shares_legend_and_notes() -> None:
    text = render_markdown(made())
    figures, shares = lines_of(text, "mend ")
    assert figures[:2] == ["mend", "**55.0** ± 7.1 (2)"]
    assert shares[:2] == ["mend", "60 ± 8 (2)"]
    figures, shares = lines_of(text, "disco")
    assert figures[:2] == ["disco", "52.0 (1, 1 failed)"]
    assert shares[:2] == ["disco", "60 (1)"]  # (0.52 - 0.40) / (0.60 - 0.40) by seed 0
    figures, shares = lines_of(text, "ca-bbc")
    assert figures[:3] == ["ca-bbc", "failed [69.1]", "[76.7]"]
    assert shares[:3] == ["ca-bbc", "[60]", "[56]"]
    (clean,) = lines_of(text, "clean")
    assert clean[:2] == ["clean", "65.0 ± 7.1 (2) [79.5]"]
    assert "11 points" in text
    assert "Mao et al. 2021, Table 1" in text
    assert "no memory)" in text
    assert "at all" not in text  # only the first line of an error
    assert "parentheses): disco." in text
    # Clean, 10 methods at 40/40, 4 in each of three columns and mend without noise: 24, twice.
    assert "Scale voc320, 9 of 48 cells" in text


def test_every_line_of_a_markdown_table_has_the_same_columns() -> None:
    mending = {"labels": {"discarded": 0.1}}  # columns without any figure are left out
    for name in LAYOUTS:
        every = {
            result_of(spec, 0.5).cell: result_of(spec, 0.5, mending=mending)
            for spec in cell_specs(LAYOUTS[name])
        }
        text = render_markdown(make_table(LAYOUTS[name], list(every.values())))
        blocks = [block for block in text.split("\n\n") if block.startswith("|")]
        assert {row.count("|") for row in blocks[0].splitlines()} == {
            len(LAYOUTS[name].columns) + 2
        }
        for block in blocks[1:]:  # of gains, columns that have none are left out
            assert len({row.count("|") for row in block.splitlines()}) == 1
        assert all(len({len(row) for row in block.splitlines()}) == 1 for block in blocks)


def test_notes_tell_what_is_odd_about_the_published_table() -> None:
    assert "equals its S1" in render_markdown(make_table(get_layout("sensitivity-t-cm"), []))
    assert "unverified" in render_markdown(make_table(get_layout("box-noise"), []))


def test_mixed_rows_are_marked_and_noted() -> None:
    odd = [
        msgspec.structs.replace(result, hardware="another") if result.method == "mend" else result
        for result in results()
    ]
    text = render_markdown(make_table(get_layout("core"), odd, None, tuple(find_differences(odd))))
    assert lines_of(text, r"mend \*")
    assert not lines_of(text, r"disco \*")
    assert r"Mixed (\*): hardware: one GPU in None-None-baseline-0" in text


def with_codes(*codes: str) -> list[Result]:
    """The results, and those of `mend` with these hashes of the source, seed by seed."""
    return [
        msgspec.structs.replace(one, code=codes[one.seed]) if one.method == "mend" else one
        for one in results()
    ]


def test_the_legend_names_rows_with_a_mean_over_versions() -> None:
    line = "Rows with a mean over results of different versions of boxmend (code): mend."
    for codes in (("a1", "b2"), ("", "b2")):
        table = make_table(get_layout("core"), with_codes(*codes))
        assert line in to_plain(table)["legend"]
        assert f"- {line}" in render_markdown(table).splitlines()
        assert line in render_html(table).decode()
    odd = with_codes("a1", "b2")
    odd[0] = msgspec.structs.replace(odd[0], code="c3")  # clean, seed 0
    assert f"{line[:-5]}clean; mend." in to_plain(make_table(get_layout("core"), odd))["legend"]


def test_the_legend_names_no_row_whose_means_have_one_version_each() -> None:
    alike = with_codes("a1", "a1")  # other rows have another one
    apart = result("mend", 0.6, noise=("symmetric:0.4", None), code="b2")  # in another column
    failed = result("mend", None, noise=BOTH, seed=2, code="c3", error="x")
    for lines in (results(), alike, [*alike, apart], [*alike, failed]):
        legend = to_plain(make_table(get_layout("core"), lines))["legend"]
        assert not any("different versions" in line for line in legend)


def test_hostile_texts_break_no_markdown() -> None:
    text = render_markdown(made(hardware=HOSTILE))
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text
    assert r"\[a\](javascript" in text  # no link
    assert len([line for line in text.splitlines() if "calc" in line]) == 1


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name in ("src", "href", "onclick", "style")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_page_needs_nothing_else_and_hostile_texts_stay_texts() -> None:
    page = Page()
    page.feed(render_html(made(hardware=HOSTILE)).decode())
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert page.tags.count("table") == 2
    assert page.tags.count("style") == 1
    assert "55.0" in page.texts
    assert "[69.1]" in page.texts
    assert "failed" in page.texts
    assert any("alert(1)" in text for text in page.texts)


def test_the_page_marks_the_best_and_the_reference() -> None:
    text = render_html(made()).decode()
    assert '<strong class="best">55.0</strong>' in text
    assert text.count('<tr class="reference">') == 1
    assert "prefers-color-scheme: dark" in text
    assert "default-src 'none'" in text or "default-src &#39;none&#39;" in text


def test_the_csv_has_a_line_for_each_square_in_fractions() -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(made()).decode())))
    assert len(rows) == 11 * 5
    by_place = {(row["row"], row["column"]): row for row in rows}
    mend = by_place["mend", "label40-box40"]
    assert float(mend["mean"]) == pytest.approx(0.55)
    assert float(mend["deviation"]) == pytest.approx(0.0707107)
    assert (mend["seeds"], mend["best"], mend["gain"]) == ("0 1", "1", "0.6")
    assert float(mend["gain_error"]) == pytest.approx(0.08)
    assert mend["cells"] == "symmetric0.4-uniform0.4-mend-0 symmetric0.4-uniform0.4-mend-1"
    clean = by_place["clean", "label40-box40"]
    assert (clean["labels"], clean["boxes"], clean["published"]) == ("", "", "0.795")
    failed = by_place["ca-bbc", "label40-box40"]
    assert (failed["mean"], failed["failed"], failed["published"]) == ("", "1", "0.691")


def test_no_field_of_the_csv_is_a_formula() -> None:
    odd = [
        msgspec.structs.replace(result, scale="-voc") for result in results()
    ]  # as no file could
    rows = list(csv.reader(io.StringIO(render_csv(make_table(get_layout("core"), odd)).decode())))
    assert rows[1][1] == "'-voc"


def test_the_json_says_the_same_in_fractions() -> None:
    document = json.loads(render_json(made()), parse_constant=_refused)
    assert document == json.loads(json.dumps(to_plain(made())))
    assert (document["table"], document["scale"], document["metric"]) == (
        "core",
        "voc320",
        "voc_ap50_area",
    )
    rows = {row["name"]: row for row in document["rows"]}
    mend = rows["mend"]["entries"]["label40-box40"]
    assert mend["mean"] == pytest.approx(0.55)
    assert mend["seeds"] == [0, 1]
    assert mend["best"] is True
    assert rows["clean"]["is_reference"] is True
    assert rows["ca-bbc"]["entries"]["label40-box40"]["failed"] == [
        "symmetric0.4-uniform0.4-ca-bbc-0"
    ]
    assert rows["mend"]["entries"]["label0-box40"]["mean"] is None


def _refused(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_columns_without_any_figure_are_left_out_and_named() -> None:
    noise = ("symmetric:0.4", "uniform:0.4")
    core = make_table(get_layout("core"), [result("oa-mil", 0.4, noise=noise)])
    text = render_markdown(core)
    # core's column without noise has neither a result nor a published figure; others have one.
    assert "label 0, box 0 |" not in text
    assert "label 20, box 20 |" in text
    assert "Left out, since there is no figure yet: label 0, box 0." in text
    page = render_html(core).decode()
    assert page.count('scope="col"') == 2 * (1 + 4)
    assert any(column["name"] == "label0-box0" for column in to_plain(core)["columns"])


def test_a_note_lists_missing_comparisons() -> None:
    noise = ("symmetric:0.4", "uniform:0.4")
    alone = [result("mend", 0.4, noise=noise)]
    notes = to_plain(make_table(get_layout("table1"), alone))["notes"]
    assert "Not compared at label 40, box 40: baseline and clean not run yet." in notes
    notes = to_plain(make_table(get_layout("table1"), [*alone, result()]))[
        "notes"
    ]  # result(): clean
    assert "Not compared at label 40, box 40: baseline not run yet." in notes
    notes = to_plain(make_table(get_layout("table1"), [*alone, result(), result(noise=noise)]))[
        "notes"
    ]
    assert not any(note.startswith("Not compared") for note in notes)


def test_other_references_are_explained_and_noted_if_missing() -> None:
    noise = ("symmetric:0.4", "uniform:0.4")
    results = [
        *(result("mend", 0.6, noise=noise), result("baseline", 0.3, noise=noise)),
        *(result("baseline", 0.7), result("baseline", 0.72, variant=dict(AVERAGED_WEIGHTS))),
    ]
    text = render_markdown(make_table(get_layout("equal-footing"), results))
    missing = "label 40, box 40: baseline, averaged weights not run yet."
    assert f"Not compared at {missing}" in text
    assert not lines_of(text, r"mend (averaged references)")
    averaged = dict(AVERAGED_WEIGHTS)
    results.append(result("baseline", 0.42, noise=noise, variant=averaged))
    text = render_markdown(make_table(get_layout("equal-footing"), results))
    assert "Not compared" not in text
    (shares,) = lines_of(text, "mend (averaged references)")  # and no second row of figures
    assert shares[1] == "60 (1)"  # (0.60 - 0.42) / (0.72 - 0.42)
    assert 'References "baseline, averaged weights" and "clean, averaged weights": mend-pa' in text
    rows = {
        row["name"]: row for row in to_plain(make_table(get_layout("equal-footing"), []))["rows"]
    }
    assert rows["mend"]["references"] == ["baseline", "clean"]


def test_the_origin_tells_how_many_cells_there_are_and_that_toys_are_toys() -> None:
    noise = ("symmetric:0.4", "uniform:0.4")
    two = [result("mend", 0.4, noise=noise, seed=seed) for seed in (0, 1)]
    # 11 noise settings, 8 rows, and the clean reference: 89 cells for each seed.
    text = render_markdown(make_table(get_layout("table1"), two))
    assert "Scale voc320, 2 of 178 cells;" in text
    assert "Drawn images" not in text
    toys = [msgspec.structs.replace(one, scale="smoke") for one in two]
    assert "Drawn images" in render_markdown(make_table(get_layout("table1"), toys))
