"""Figures over training: threshold, flagged shares, estimated noise and overlap, by hand."""

from dataclasses import replace
from math import inf, nan

import pytest

from boxmend.web.report.figures.iou import iou
from boxmend.web.report.figures.threshold import threshold
from boxmend.web.report.record import Figure, RunRecord
from tests.fabricated_runs import BOXES, DISCARDED, KEPT, RELABELLED, UNJUDGED
from tests.web.report.drawn_records import (
    made_dataset,
    made_record,
    made_truth,
    seen,
    telling_record,
)
from tests.web.report.read_drawings import found, numbers, texts

FAR_OFF = (0.0, 0.0, 9.0, 9.0)


def series_of(figure: Figure | None, name: str) -> list[tuple[object, ...]]:
    assert figure is not None
    return [row[1:] for row in figure.rows if row[0] == name]


def test_threshold_and_shares_are_those_of_each_piece_of_training() -> None:
    figure = threshold(telling_record())
    # Three epochs of four visits, one point each; the first is for warm-up.
    assert series_of(figure, "threshold") == [
        (0.5, None, None, None),
        (1.5, 2.0, 2.0, 2.0),
        (2.5, 2.0, 2.0, 2.0),
    ]
    expected = [(0.5, None, None, None), (1.5, 0.25, None, None), (2.5, 0.25, None, None)]
    assert series_of(figure, "relabelled") == expected
    assert series_of(figure, "discarded") == expected


def test_the_estimated_noise_is_at_the_end_of_its_epoch_with_its_band() -> None:
    figure = threshold(telling_record())
    assert series_of(figure, "estimated noise") == [
        (1.0, 0.25, 0.125, 0.5),
        (2.0, 0.25, 0.125, 0.5),
        (3.0, 0.25, 0.125, 0.5),
    ]
    assert figure is not None
    assert "an estimated 25 % are wrong" in figure.caption


def test_lines_are_drawn_at_their_epochs_and_warm_up_is_shaded_before_them() -> None:
    figure = threshold(telling_record())
    assert figure is not None
    line = next(one for one in found(figure.svg, "path", "series-4") if one.get("fill") == "none")
    xs = [float(step.split()[0]) for step in line.attrib["d"][1:].split("L")]
    # Three epochs over 480 - 48 - 136 = 296; the points are at 1.5 and 2.5 epochs.
    assert xs == pytest.approx([48 + 296 * 1.5 / 3, 48 + 296 * 2.5 / 3], abs=0.01)
    shade = found(figure.svg, "rect", "shade")[0]
    assert numbers(shade, "x", "width") == [48, pytest.approx(296 / 3, abs=0.01)]
    assert texts(figure.svg).count("warm-up") == 2


def test_many_visits_give_many_points_of_which_none_rests_on_few() -> None:
    dataset = made_dataset([BOXES[0]] * 200, [0] * 200)
    visits = [
        seen(
            0,
            row,
            RELABELLED if row < 100 else KEPT,
            1 if row < 100 else 0,
            loss=1.0,
            threshold=2.0,
            step=row // 20,
        )
        for row in range(200)
    ]
    figure = threshold(made_record(visits, dataset=dataset))
    # 200 visits are four points of 50 at an eighth, three eighths and so on of the epoch.
    shares = series_of(figure, "relabelled")
    assert [row[0] for row in shares] == [0.125, 0.375, 0.625, 0.875]
    # Ten steps in four pieces of 2.5: 60 visits, 40, 60 and 40.
    assert [row[1] for row in shares] == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("limit", [inf, nan])
def test_without_a_finite_threshold_only_the_shares_are_drawn(limit: float) -> None:
    figure = threshold(
        made_record([seen(0, row, KEPT, loss=1.0, threshold=limit) for row in range(4)])
    )
    assert series_of(figure, "threshold") == []
    assert figure is not None
    assert "threshold on the loss" not in texts(figure.svg)
    assert "share of the labels" in texts(figure.svg)


def test_thresholds_below_zero_stay_on_the_axis() -> None:
    visits = [seen(epoch, 0, KEPT, loss=0.5, threshold=-1.0) for epoch in range(2)]
    figure = threshold(made_record(visits))
    assert figure is not None
    line = found(figure.svg, "path", "series-4")[-1]
    heights = [float(step.split()[1]) for step in line.attrib["d"][1:].split("L")]
    # The plot is 120 high from 34 and goes from -1 to a quarter above 0.
    assert heights == [154, 154]


def test_a_run_that_judged_nothing_has_no_such_figure() -> None:
    assert threshold(made_record([seen(0, row, UNJUDGED, loss=1.0) for row in range(4)])) is None
    assert threshold(made_record([seen(0, 0, KEPT)], warm_up_epochs=1)) is None
    assert threshold(made_record([])) is None


@pytest.mark.parametrize(
    "line",
    [
        {"step": 10, "label_noise": None},
        {"step": 10, "label_noise": "much"},
        {"step": 10, "label_noise": 1e300},
        {"step": 10, "label_noise": nan},
        {"step": 10**30, "label_noise": 0.5},
        {"step": -1, "label_noise": 0.5},
        {"label_noise": 0.5},
        {"step": 10, "label_noise": [0.5]},
    ],
)
def test_metrics_that_make_no_sense_are_passed_over(line: dict[str, object]) -> None:
    figure = threshold(replace(telling_record(), metrics=[line]))
    assert series_of(figure, "estimated noise") == []


def test_an_estimate_after_the_last_visit_stays_on_the_axis() -> None:
    figure = threshold(replace(telling_record(), metrics=[{"step": 31, "label_noise": 0.5}]))
    assert series_of(figure, "estimated noise") == [(3.0, 0.5, None, None)]


def overlap(record: RunRecord) -> dict[tuple[object, object], object]:
    figure = iou(record)
    assert figure is not None
    return {(row[0], row[1]): row[2] for row in figure.rows}


def test_overlap_with_the_truth_is_the_mean_over_the_visits_of_an_epoch() -> None:
    means = overlap(telling_record())
    # Annotated: 1, 1, 1 and half for the box that is half as high as its truth.
    assert [means[epoch, "annotated"] for epoch in (1, 2, 3)] == [0.875] * 3
    # Matched: 20 x 20 of 24 x 20 is 5/6, so (1 + 5/6 + 1 + 1/2) / 4 after warm-up.
    assert means[1, "matched"] == 0.875
    assert means[3, "matched"] == pytest.approx(10 / 12)
    # Final: one spoiled to 1/2, one mended to 1.
    assert means[3, "final"] == pytest.approx(3.5 / 4)


def test_without_truth_it_is_the_overlap_with_what_was_annotated() -> None:
    means = overlap(replace(telling_record(), truth=None))
    assert means[1, "final"] == 1
    assert means[2, "final"] == pytest.approx((1 + 0.5 + 1 + 0.5) / 4)
    assert means[2, "matched"] == pytest.approx((3 + 5 / 6) / 4)
    assert (1, "annotated") not in means


def test_spurious_annotations_have_no_iou() -> None:
    dataset = made_dataset()
    truth = made_truth(dataset, [0, 1, 2, -1], [*BOXES[:3], (0, 0, 1, 1)])
    visits = [seen(0, 0, box=(10, 10, 30, 30)), *(seen(0, row) for row in (1, 2, 3))]
    figure = iou(made_record(visits, dataset=dataset, truth=truth))
    assert figure is not None
    assert [row[:2] for row in figure.rows] == [
        (1, "annotated"),
        (1, "matched"),
        (1, "final"),
    ]
    assert [row[2] for row in figure.rows] == pytest.approx([1, 1, 2.5 / 3])
    assert {row[3] for row in figure.rows} == {3}


def test_the_line_of_final_boxes_goes_through_its_means() -> None:
    figure = iou(telling_record())
    assert figure is not None
    line = found(figure.svg, "path", "series-2")[0].attrib["d"]
    points = [tuple(map(float, step.split())) for step in line[1:].split("L")]
    # 302 wide for 0.5 to 3.5, and 220 high from 34 for 0.7 to 0.9: 0.875 is 7/8 of the way up.
    xs = [48 + 302 * (epoch - 0.5) / 3 for epoch in (1, 2, 3)]
    assert [x for x, _ in points] == pytest.approx(xs, abs=0.01)
    assert [y for _, y in points] == pytest.approx([34 + 220 / 8] * 3, abs=0.01)


def test_one_epoch_is_drawn_as_dots() -> None:
    figure = iou(made_record([seen(0, 0, box=(10, 10, 30, 30))]))
    assert figure is not None
    assert len(found(figure.svg, "circle")) == 2
    assert figure.rows == [(1, "matched", 1.0, 1), (1, "final", 0.5, 1)]


def test_where_nothing_moved_there_is_nothing_to_see() -> None:
    truth = made_truth(made_dataset(), [0, 1, 2, 0], [FAR_OFF] * 4)
    assert iou(made_record([seen(0, 0), seen(0, 1, DISCARDED)], truth=truth)) is None
    assert iou(made_record([seen(0, 0), seen(0, 1, DISCARDED)])) is None
    assert iou(made_record([])) is None
