"""Tables as pictures: what is drawn where, and that every table can be."""

import re
from xml.etree import ElementTree

import pytest

from boxmend.bench.grids.chart import draw_svg
from boxmend.bench.grids.layouts import LAYOUTS, get_layout
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.table_spec import cell_specs
from boxmend.bench.grids.tables import GridTable, make_table
from boxmend.web.charts.rows import ROW
from tests.bench.grid_results import result, result_of

BOTH = ("symmetric:0.4", "uniform:0.4")
SPACE = "{http://www.w3.org/2000/svg}"


def drawn(made: GridTable) -> ElementTree.Element:
    return ElementTree.fromstring(draw_svg(made))


def words(picture: ElementTree.Element) -> list[str]:
    return [str(element.text) for element in picture.iter(f"{SPACE}text")]


def dots(picture: ElementTree.Element, css: str) -> list[tuple[float, float]]:
    """Discs or rings of a series, without the one in the legend."""
    listed = [element for element in picture.iter(f"{SPACE}circle") if element.get("class") == css]
    return [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in listed[1:]]


def forty(**ap50: float) -> list[Result]:
    """Clean 0.7 and baseline 0.3 at 40/40, so that 0.5 wins back one half."""
    others = [result(name.replace("_", "-"), one, noise=BOTH) for name, one in ap50.items()]
    return [result("baseline", 0.7), result("baseline", 0.3, noise=BOTH), *others]


def test_shares_lie_between_baseline_and_clean_with_the_published_ones_beside() -> None:
    picture = drawn(make_table(get_layout("core"), forty(mend=0.5, mend_paper=0.4)))
    ticks = {
        str(element.text): float(element.attrib["x"])
        for element in picture.iter(f"{SPACE}text")
        if str(element.text).endswith(" %")
    }
    (paper_x, paper_y), (mend_x, mend_y) = dots(picture, "series-1")
    assert mend_x == pytest.approx(ticks["50 %"], abs=0.01)
    assert paper_x == pytest.approx((ticks["0 %"] + ticks["50 %"]) / 2, abs=0.01)  # 25 %
    assert mend_y == paper_y + ROW
    rings = {y: x for x, y in dots(picture, "series-2")}
    width = ticks["100 %"] - ticks["0 %"]
    published = (70.3 - 53.7) / (79.5 - 53.7)  # of the paper's method, and mend has none
    assert rings[paper_y] == pytest.approx(ticks["0 %"] + published * width, abs=0.01)
    assert mend_y not in rings
    assert {"label 40, box 40", "mend", "50.0", "25.0"} <= set(words(picture))
    assert "label 20, box 20" not in words(picture)  # where nothing was run


def test_what_lies_far_below_the_baseline_is_an_arrow_at_the_edge() -> None:
    picture = drawn(make_table(get_layout("core"), forty(mend=0.5, lr=0.0)))
    assert len(dots(picture, "series-1")) == 1
    (arrow,) = [
        element for element in picture.iter(f"{SPACE}path") if element.get("class") == "series-1"
    ]
    assert "-75.0" in words(picture)
    edge = min(float(d) for d in re.findall(r"[ML]([\d.]+)", arrow.attrib["d"]))
    (mend_x, _), *_ = dots(picture, "series-1")
    assert edge < mend_x


def test_an_error_is_a_bar_around_the_mean() -> None:
    results = [result("baseline", 0.6), result("baseline", 0.62, seed=1)]
    results += [result("mend", 0.61), result("mend", 0.62, seed=1)]  # +1 and 0 points
    picture = drawn(make_table(get_layout("no-harm"), results))
    (bar,) = [
        element for element in picture.iter(f"{SPACE}line") if element.get("class") == "series-1"
    ]
    (x, _), *_ = dots(picture, "series-1")
    ends = [float(bar.attrib[name]) for name in ("x1", "x2")]
    assert sum(ends) / 2 == pytest.approx(x, abs=0.01)
    zero = next(
        float(element.attrib["x"])
        for element in picture.iter(f"{SPACE}text")
        if element.text == "0"
    )
    assert ends[0] == pytest.approx(zero, abs=0.01)  # half a point, give or take half a point
    assert "0.5" in words(picture)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_table_can_be_drawn_in_full_and_empty(name: str) -> None:
    every = {result_of(spec, 0.5).cell: result_of(spec, 0.5) for spec in cell_specs(LAYOUTS[name])}
    for results in ([], list(every.values())):
        picture = drawn(make_table(LAYOUTS[name], results))
        _, _, width, height = map(float, picture.attrib["viewBox"].split())
        for element in picture.iter(f"{SPACE}text"):
            assert 0 <= float(element.attrib["x"]) <= width
            assert 0 <= float(element.attrib["y"]) <= height
    assert "There are no results yet." in words(drawn(make_table(LAYOUTS[name], [])))
