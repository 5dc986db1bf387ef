"""Marks, axes and series against coordinates worked out by hand."""

from itertools import pairwise
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.web.charts import STYLES, axes, drawing, legend, marks, series, standalone
from boxmend.web.charts.heat import heat_map
from boxmend.web.charts.styles import DARK, LIGHT
from tests.web.report.read_drawings import found, numbers, parsed, texts

# 100 wide from 50, 200 high from 20: 0..10 goes across, 0..4 upwards.
PLOT = axes.Plot(50, 20, 100, 200, x=(0, 10), y=(0, 4))


def on_a_sheet(content: str) -> str:
    return drawing("made-up", "Title", "Message", (560, 300), content)


def path_points(svg: str, number: int = 0) -> list[tuple[float, float]]:
    steps = found(svg, "path")[number].attrib["d"].strip("MZ").split("L")
    return [(float(x), float(y)) for x, y in (step.split() for step in steps)]


def test_numbers_lie_where_the_edges_of_a_plot_say() -> None:
    assert PLOT.at(0, 0) == (50, 220)
    assert PLOT.at(10, 4) == (150, 20)
    assert PLOT.at(2.5, 1) == (75, 170)


def test_ticks_stand_below_and_beside_their_places() -> None:
    svg = on_a_sheet(axes.across(PLOT, [0, 5], None, "epoch") + axes.upwards(PLOT, [2], ["two"]))
    assert texts(svg) == ["0", "5", "epoch", "two"]
    five, two = found(svg, "text")[1], found(svg, "text")[3]
    assert numbers(five, "x") == [100]
    assert numbers(two, "y")[0] == pytest.approx(120, abs=5)
    grid = found(svg, "line", "grid")[0]
    assert numbers(grid, "x1", "y1", "x2", "y2") == [50, 120, 150, 120]


def test_a_histogram_is_one_outline_of_steps_without_empty_ends() -> None:
    svg = on_a_sheet(series.histogram(PLOT, [0, 2, 4, 6, 8], [0, 1, 4, 0], "series-1", "none"))
    expected = [(70, 220), (70, 170), (90, 170), (90, 20), (110, 20), (110, 220)]
    assert path_points(svg, 0) == expected  # filled
    assert path_points(svg, 1) == expected  # and outlined
    assert series.histogram(PLOT, [0, 2, 4], [0, 0], "series-1", "none") == ""


def test_a_curve_breaks_at_missing_numbers_and_a_lone_point_is_a_dot() -> None:
    svg = on_a_sheet(series.curve(PLOT, [0, 5, 6, 7], [0, 4, nan, 2], "series-1", dash="dashed"))
    assert path_points(svg) == [(50, 220), (100, 20)]
    assert len(found(svg, "path")) == 1
    assert found(svg, "path")[0].get("stroke-dasharray")
    assert numbers(found(svg, "circle")[0], "cx", "cy") == [120, 120]


def test_a_band_goes_along_its_upper_and_back_along_its_lower_line() -> None:
    svg = on_a_sheet(series.band(PLOT, [0, 5, 10], [1, 2, nan], [3, 4, 4], "series-1"))
    assert path_points(svg) == [(50, 70), (100, 20), (100, 120), (50, 170)]


def test_labels_that_are_too_close_move_apart() -> None:
    assert series.spread([10, 12, 50], 10, 0, 100) == [10, 20, 50]
    assert series.spread([98, 99], 10, 0, 100) == [90, 100]  # pushed back from the edge
    assert series.spread([5, 1], 2, 0, 100) == [5, 1]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_labels_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    placed = series.spread(wanted, 10, 0, 100)
    ordered = sorted(placed)
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(ordered))
    assert [w for _, w in sorted(zip(placed, wanted, strict=True))] == sorted(wanted)
    assert -1e-9 <= ordered[0] <= ordered[-1] <= 100 + 1e-9


def test_keys_break_into_rows_where_room_ends() -> None:
    entries = [legend.Key("first", "series-1"), legend.Key("second", "series-2", "area")]
    wide, low = legend.keys(entries, 0, 0, 500)
    narrow, high = legend.keys(entries, 0, 0, 100)
    assert (low, high) == (legend.ROW, 2 * legend.ROW)
    across = found(on_a_sheet(narrow), "text")
    assert numbers(across[0], "x") == numbers(across[1], "x")
    assert numbers(found(on_a_sheet(wide), "text")[1], "x")[0] > 100


def test_a_heat_map_is_darkest_at_the_most_and_empty_where_nothing_is() -> None:
    content, size = heat_map(["a", "b"], [[0, 4], [1, 0]], ("old", "new"), 4)
    svg = drawing("made-up", "Title", "Message", size, content)
    cells = found(svg, "rect", "heat")
    assert [float(cell.attrib["fill-opacity"]) for cell in cells] == [0.6, pytest.approx(0.21)]
    # "a" to "b" is in the first row, second column; "b" to "a" the other way round.
    (x, y), (back_x, back_y) = (numbers(cell, "x", "y") for cell in cells)
    assert x > back_x
    assert y < back_y
    assert [text for text in texts(svg) if text.isdigit()] == ["4", "1"]


def test_a_heat_map_gets_no_darker_beyond_the_most() -> None:
    content, size = heat_map(["a", "b"], [[0, 4], [1, 0]], ("old", "new"), 2)
    cells = found(drawing("made-up", "Title", "Message", size, content), "rect", "heat")
    # From 0.08 to 0.6 at two and above; one is half-way.
    assert [float(cell.attrib["fill-opacity"]) for cell in cells] == [0.6, pytest.approx(0.34)]


def test_a_drawing_tells_in_words_what_it_shows_under_ids_of_its_own() -> None:
    svg = on_a_sheet(marks.text((1, 2), 'a <b> & "c"'))
    root = parsed(svg)
    assert root.get("role") == "img"
    assert root.get("viewBox") == "0 0 560 300"
    assert root.get("width") is None
    title, desc = root[0], root[1]
    assert (title.get("id"), desc.get("id")) == ("chart-made-up-title", "chart-made-up-desc")
    assert (title.text, desc.text) == ("Title", "Message")
    assert root.get("aria-labelledby") == title.get("id")
    assert root.get("aria-describedby") == desc.get("id")
    assert texts(svg) == ['a <b> & "c"']


def test_a_file_of_its_own_has_paper_and_colours_of_both_themes() -> None:
    svg = standalone(on_a_sheet(marks.dot((1, 2), "series-1")))
    style = found(svg, "style")[0].text or ""
    assert found(svg, "rect")[0].get("class") == "paper"
    assert "var(" not in style
    dark = style.index("prefers-color-scheme: dark")
    assert style.index(LIGHT["series-1"]) < dark < style.index(DARK["series-1"])


def test_a_page_colours_every_class_in_both_themes_and_by_choice() -> None:
    assert LIGHT.keys() == DARK.keys()
    for name in LIGHT:
        assert f".chart .{name}{{color:var(--chart-{name})}}" in STYLES
        assert STYLES.count(f"--chart-{name}:{DARK[name]};") >= 2  # by the system and by choice
    assert "<" not in STYLES


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_series_stand_out_from_the_paper(palette: dict[str, str]) -> None:
    texts_in = ("ink", "muted", "series-1", "series-2", "series-3", "series-4")
    for name in texts_in:
        assert contrast(palette[name], palette["paper"]) >= 4.5, name


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_ink_can_be_read_on_the_darkest_cell(palette: dict[str, str]) -> None:
    mixed = [
        round(
            0.6 * int(palette["heat"][k : k + 2], 16) + 0.4 * int(palette["paper"][k : k + 2], 16)
        )
        for k in (1, 3, 5)
    ]
    cell = "#" + "".join(f"{part:02x}" for part in mixed)
    assert contrast(palette["ink"], cell) >= 4.5


@pytest.mark.parametrize(("palette", "page"), [(LIGHT, "#ffffff"), (DARK, "#181c22")])
def test_marks_stand_out_from_the_cards_of_the_page(palette: dict[str, str], page: str) -> None:
    # 3 to 1 is what WCAG 2.2 asks of graphical objects (1.4.11); text needs 4.5.
    for name in ("quiet", "axis", "series-1", "series-2", "series-3", "series-4"):
        assert contrast(palette[name], page) >= 3, name
    for name in ("ink", "muted"):
        assert contrast(palette[name], page) >= 4.5, name
