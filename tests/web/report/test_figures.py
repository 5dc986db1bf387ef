"""What holds for every figure: records of all kinds, hostile names, and a strict page."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.web.charts import standalone
from boxmend.web.charts.styles import LIGHT
from boxmend.web.report.figure_files import figure_csv
from boxmend.web.report.figures import FIGURES
from boxmend.web.report.record import Figure, RunRecord
from tests.fabricated_runs import BOXES, DISCARDED, KEPT, RELABELLED, UNJUDGED, Visit
from tests.web.report.drawn_records import (
    made_dataset,
    made_record,
    made_truth,
    many_visits_record,
    seen,
    telling_record,
    telling_visits,
)
from tests.web.report.read_drawings import found, parsed

HOSTILE = (
    "<script>alert(1)</script>",
    "\"quotes\" 'and' &amp; ]]>",
    "\u202e\0\ud800\ufffe" + "x" * 10_000,
)
SHAPES = {"text", "line", "path", "rect", "circle", "image"}
TAGS = {"svg", "title", "desc", "defs", "pattern", "style", *SHAPES}
LEAST_SIZE = 11.0  # of text, at 640 pixels of width


def hostile_record(folder: Path) -> RunRecord:
    record = telling_record(folder)
    dataset = replace(record.opened.dataset, label_names=HOSTILE)
    aps = dict(zip(HOSTILE, (0.5, 0.75, 0.25), strict=True))
    return replace(
        record,
        name=HOSTILE[2],
        opened=replace(record.opened, dataset=dataset),
        label_ap=aps,
        baseline_ap=aps,
        beside=(replace(record, name=HOSTILE[0]),),
    )


def figure_of(name: str, record: RunRecord) -> Figure:
    figure = FIGURES[name](record)
    assert figure is not None
    return figure


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_the_name_it_is_listed_under_and_rows_as_wide_as_its_columns(
    name: str, tmp_path: Path
) -> None:
    figure = figure_of(name, telling_record(tmp_path))
    assert figure.name == name
    assert figure.title
    assert figure.caption.endswith(".")
    assert figure.rows
    assert all(len(row) == len(figure.columns) for row in figure.rows)
    assert all(
        value is None or type(value) in (str, int, float) for row in figure.rows for value in row
    )


@pytest.mark.parametrize("name", FIGURES)
def test_hostile_names_give_well_formed_drawings_with_nothing_that_runs(
    name: str, tmp_path: Path
) -> None:
    figure = figure_of(name, hostile_record(tmp_path))
    for svg in (figure.svg, standalone(figure.svg)):
        for element in parsed(svg).iter():
            tag = element.tag.rpartition("}")[2]
            assert tag in TAGS
            assert not [key for key in element.attrib if key.startswith("on")]
            assert len(element.text or "") < 4000
        assert "\u202e" not in svg
    for result in (figure.caption, figure.title):
        result.encode("utf-8")
        assert "\0" not in result
        assert len(result) < 1000


@pytest.mark.parametrize("name", FIGURES)
def test_a_drawing_asks_nothing_of_the_page_but_its_stylesheet(name: str, tmp_path: Path) -> None:
    svg = figure_of(name, hostile_record(tmp_path)).svg
    for element in parsed(svg).iter():
        assert element.tag.rpartition("}")[2] not in ("style", "script", "foreignObject")
        assert "style" not in element.attrib
        for key, value in element.attrib.items():
            if key.endswith("href"):
                assert value.startswith("data:image/jpeg;base64,")
            elif "url(" in value:
                assert value.startswith("url(#chart-")
        classes = element.get("class", "chart").split()
        assert set(classes) <= {"chart", "wide", *LIGHT}


def test_ids_are_unique_over_all_figures_of_a_page(tmp_path: Path) -> None:
    record = telling_record(tmp_path)
    page = "".join(figure_of(name, record).svg for name in FIGURES)
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids)) >= 2 * len(FIGURES)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_large_enough_and_within_the_sheet(name: str, tmp_path: Path) -> None:
    many = many_visits_record(600, 3, 80)
    names = many.opened.dataset.label_names
    aps = dict.fromkeys(names, 0.5)
    records = [telling_record(tmp_path), replace(many, label_ap=aps, baseline_ap=aps)]
    for figure in filter(None, (FIGURES[name](record) for record in records)):
        width, height = map(float, parsed(figure.svg).attrib["viewBox"].split()[2:])
        for text in found(figure.svg, "text"):
            assert float(text.attrib["font-size"]) * 640 / width >= LEAST_SIZE
            assert 0 <= float(text.attrib["x"]) <= width
            assert 0 <= float(text.attrib["y"]) <= height


@pytest.mark.parametrize("name", FIGURES)
def test_an_empty_dataset_and_a_run_without_visits_have_no_figures(name: str) -> None:
    assert FIGURES[name](made_record([], dataset=made_dataset([]))) is None
    assert FIGURES[name](made_record([])) is None


@pytest.mark.parametrize("name", FIGURES)
def test_a_run_that_judged_and_moved_nothing_has_figures_only_of_what_is_known(
    name: str, tmp_path: Path
) -> None:
    dataset = made_dataset(folder=tmp_path)
    visits = [seen(epoch, row, UNJUDGED) for epoch in range(2) for row in range(4)]
    assert FIGURES[name](made_record(visits, dataset=dataset)) is None


@pytest.mark.parametrize("name", FIGURES)
def test_one_epoch_and_one_label_are_enough(name: str, tmp_path: Path) -> None:
    dataset = made_dataset(labels=[0] * 4, names=("van",), folder=tmp_path)
    visits = [seen(0, row, loss=0.5, threshold=1.0, confidence=0.9) for row in range(3)]
    visits.append(seen(0, 3, loss=2.0, threshold=3.0, confidence=0.9, box=(50, 50, 90, 90)))
    record = made_record(visits, dataset=dataset, label_ap={"van": 1.0}, baseline_ap={"van": 0.0})
    figure = FIGURES[name](record)
    if name in ("confusion", "changes"):  # nothing was relabelled, and no truth is known
        assert figure is None
    else:
        assert figure is not None
        parsed(figure.svg)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_many_labels_stay_of_bounded_size(name: str) -> None:
    record = many_visits_record(3000, 3, 80)
    aps = dict.fromkeys(record.opened.dataset.label_names, 0.5)
    figure = FIGURES[name](replace(record, label_ap=aps, baseline_ap=aps))
    if figure is not None:
        assert len(figure.svg) < 200_000
        assert float(parsed(figure.svg).attrib["viewBox"].split()[3]) < 1000


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_same_each_time(name: str, tmp_path: Path) -> None:
    assert figure_of(name, telling_record(tmp_path)) == figure_of(name, telling_record(tmp_path))


ANY_NUMBER = st.floats(width=32)
ANY_BOX = st.none() | st.tuples(*[ANY_NUMBER] * 4)
ANY_VISIT = st.builds(
    Visit,
    epoch=st.integers(0, 2),
    row=st.integers(0, 3),
    verdict=st.sampled_from([KEPT, RELABELLED, DISCARDED, UNJUDGED]),
    label=st.none() | st.integers(0, 2),
    loss=ANY_NUMBER,
    threshold=ANY_NUMBER,
    confidence=ANY_NUMBER,
    matched=ANY_BOX,
    box=ANY_BOX,
    is_kept=st.booleans(),
    step=st.integers(0, 9),
)


@given(st.lists(ANY_VISIT, max_size=8), st.booleans())
@settings(deadline=None, max_examples=50)
def test_any_numbers_in_a_ledger_give_well_formed_drawings(
    visits: list[Visit], has_truth: bool
) -> None:
    dataset = made_dataset()
    truth = made_truth(dataset, [0, 2, -1, 0], BOXES) if has_truth else None
    ordered = sorted(visits, key=lambda one: (one.epoch, one.step))
    record = made_record(ordered, dataset=dataset, truth=truth, warm_up_epochs=1)
    for draw in FIGURES.values():
        figure = draw(record)
        if figure is not None:
            assert not re.search(r'="[^"]*(nan|inf)\b', figure.svg)
            parsed(figure.svg)
            figure_csv(figure)


def test_labels_and_images_that_are_not_declared_disturb_no_figure(tmp_path: Path) -> None:
    dataset = made_dataset(folder=tmp_path)
    dataset.labels[0] = dataset.image_rows[3] = -1
    record = made_record(telling_visits(), dataset=dataset, warm_up_epochs=1)
    shown = [figure for draw in FIGURES.values() if (figure := draw(record)) is not None]
    assert {"verdicts", "confusion", "losses", "threshold", "iou"} <= {one.name for one in shown}
    for figure in shown:
        ElementTree.fromstring(figure.svg.encode())
