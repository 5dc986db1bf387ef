"""The gallery's columns against numbers worked out by hand."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path

import numpy as np

from boxmend.web.report.gallery import Mark, columns, gallery_of, marks_of, requests_of
from boxmend.web.thumbnails import Thumbnails
from tests.fabricated_runs import BOXES, DISCARDED, KEPT, RELABELLED, UNJUDGED
from tests.web.report.drawn_records import (
    made_dataset,
    made_record,
    made_truth,
    seen,
    telling_record,
    telling_visits,
)

# Of the telling record: row 0 is kept; 1 relabelled and moved; 2 unsure; 3 moved.
ALL_THERE = [
    Thumbnails([(0, 0, 40, 30)], ["one.jpg"], whole="first.jpg", size=(80, 60)),
    Thumbnails(
        [(1, 2, 41, 32), (5, 6, 45, 36)], ["two.jpg", "three.jpg"], "", "last.jpg", (90, 70)
    ),
]


def test_what_changed_is_shown_and_what_was_kept_is_not() -> None:
    gallery = gallery_of(replace(telling_record(), truth=None))
    assert gallery.rows.tolist() == [1, 2, 3]
    assert gallery.marks.tolist() == [Mark.RIGHT] * 3


def test_the_columns_say_what_became_of_each_row() -> None:
    table = columns(gallery_of(replace(telling_record(), truth=None)), ALL_THERE)
    assert table["labels"] == ["van", "truck", "bus"]
    assert table["id"] == ["11", "12", "13"]
    assert [table["files"][file] for file in table["file"]] == ["0.png", "1.png", "1.png"]
    assert table["old"] == [1, 2, 0]
    assert table["new"] == [2, 2, 0]
    assert table["verdict"] == [RELABELLED, DISCARDED, KEPT]
    assert table["moved"] == [1, 0, 1]
    assert table["loss"] == [3.5, 2.5, 0.75]
    assert table["threshold"] == [2.0, 2.0, 2.0]
    assert table["confidence"] == [0.8, 0.4, 0.7]
    # 20 x 20 became 20 x 10: 200 / 400. 40 x 20 became 40 x 40: 800 / 1600.
    assert table["iou"] == [0.5, 1.0, 0.5]
    assert [table["reasons"][reason] for reason in table["reason"]] == [
        "label: bus instead of truck in 1 of 1 visits; box: mean of 1 visit",
        "label: unsure of bus in 1 of 1 visits, kept",
        "box: mean of 1 visit",
    ]
    assert table["boxes"]["annotated"] == [40, 20, 60, 40, 5, 5, 25, 15, 50, 50, 90, 70]
    assert table["boxes"]["matched"][:4] == [40, 20, 64, 40]
    assert table["boxes"]["final"][:4] == [40, 20, 60, 30]
    assert table["windows"] == [0, 0, 40, 30, 1, 2, 41, 32, 5, 6, 45, 36]
    assert table["pictures"] == ["one.jpg", "two.jpg", "three.jpg"]
    assert [table["whole"][file] for file in table["file"]] == ["first.jpg", *["last.jpg"] * 2]
    assert table["sizes"] == [80, 60, 90, 70]  # by file
    assert [table["problems"][one] for one in table["problem"]] == ["", "", ""]
    assert "mark" not in table


def test_an_image_that_cannot_be_read_leaves_its_rows_without_pictures() -> None:
    made = [Thumbnails([], [], "no such file"), ALL_THERE[1]]
    table = columns(gallery_of(replace(telling_record(), truth=None)), made)
    assert table["pictures"] == [None, "two.jpg", "three.jpg"]
    assert table["whole"] == [None, "last.jpg"]
    assert table["windows"][:4] == [0, 0, 0, 0]
    assert [table["problems"][one] for one in table["problem"]] == ["no such file", "", ""]


def test_the_truth_adds_what_it_says() -> None:
    # True are van, bus, van, van: row 1 was mended, row 2 is called bus and rightly doubted.
    table = columns(gallery_of(telling_record()), ALL_THERE)
    assert table["mark"] == [Mark.MENDED, Mark.DOUBTED_RIGHTLY, Mark.RIGHT]
    assert table["truth"] == [2, 0, 0]
    # Row 1 was right and lost half of it; row 3, (50, 50, 90, 70), truly reaches down to 90.
    assert table["before"] == [1.0, 1.0, 0.5]
    assert table["after"] == [0.5, 1.0, 1.0]
    assert table["boxes"]["true"][8:] == [50, 50, 90, 90]


def test_every_mark_has_its_case() -> None:
    verdicts = [
        (RELABELLED, 1, 1),  # verdict, new label, true label; all are annotated as 0
        (RELABELLED, 1, 0),
        (RELABELLED, 1, 2),
        (KEPT, 0, 2),
        (DISCARDED, 0, 2),
        (DISCARDED, 0, 0),
        (KEPT, 0, 0),
        (UNJUDGED, 0, 1),
        (KEPT, 0, -1),  # a spurious annotation
        (RELABELLED, 1, -1),
    ]
    n = len(verdicts)
    dataset = made_dataset([BOXES[0]] * n, [0] * n)
    visits = [seen(0, row, one[0], one[1]) for row, one in enumerate(verdicts)]
    truth = made_truth(dataset, [verdict[2] for verdict in verdicts], [BOXES[0]] * n)
    record = made_record(visits, dataset=dataset, truth=truth)
    assert [Mark(one) for one in marks_of(record.opened, truth)] == [
        Mark.MENDED,
        Mark.HARMED,
        Mark.STILL_WRONG,
        Mark.MISSED,
        Mark.DOUBTED_RIGHTLY,
        Mark.DOUBTED_WRONGLY,
        Mark.RIGHT,
        Mark.MISSED,
        Mark.MISSED,
        Mark.STILL_WRONG,
    ]
    assert gallery_of(record).rows.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert marks_of(record.opened, None).tolist() == [Mark.RIGHT] * n


def test_difficult_objects_were_not_missed() -> None:
    dataset = replace(made_dataset(), is_difficult=np.array([True, False, False, False]))
    truth = made_truth(dataset, [2, 2, 2, 0], BOXES)
    record = made_record([seen(0, 3)], dataset=dataset, truth=truth)
    assert marks_of(record.opened, truth).tolist() == [Mark.RIGHT, Mark.MISSED, 0, 0]


def test_numbers_that_are_not_known_are_none_and_infinite_thresholds_too() -> None:
    visits = [seen(0, 1, RELABELLED, 2, loss=nan, threshold=inf, confidence=nan)]
    table = columns(gallery_of(made_record(visits)), [Thumbnails([(0, 0, 9, 9)], ["a.jpg"])])
    assert (table["loss"], table["threshold"], table["confidence"]) == ([None], [None], [None])


def test_a_box_that_moved_under_a_doubted_label_has_both_reasons() -> None:
    visits = [seen(0, 2, DISCARDED, box=(5, 5, 25, 25))]
    table = columns(gallery_of(made_record(visits)), [Thumbnails([(0, 0, 9, 9)], ["a.jpg"])])
    assert table["reasons"] == ["label: unsure of bus in 1 of 1 visits, kept; box: mean of 1 visit"]


def test_a_picture_shows_all_boxes_of_its_row(tmp_path: Path) -> None:
    requests = requests_of(gallery_of(telling_record(tmp_path)))
    assert [Path(request.path).name for request in requests] == ["0.png", "1.png"]
    # Row 1: annotated up to (60, 40), matched up to (64, 40), final up to (60, 30).
    assert requests[0].boxes == [(40, 20, 64, 40)]
    # Row 2 has one box; row 3 reaches down to 90 in the end.
    assert requests[1].boxes == [(5, 5, 25, 15), (50, 50, 90, 90)]


def test_rows_come_image_by_image_whatever_their_order_in_the_file() -> None:
    dataset = replace(made_dataset(), image_rows=np.array([1, 0, 1, 0]))
    record = made_record(telling_visits(), dataset=dataset, warm_up_epochs=1)
    gallery = gallery_of(record)
    assert gallery.rows.tolist() == [1, 3, 2]
    assert [len(one.boxes) for one in requests_of(gallery)] == [2, 1]


def test_nothing_changed_is_an_empty_gallery() -> None:
    gallery = gallery_of(made_record([seen(0, 0)]))
    assert len(gallery) == 0
    assert requests_of(gallery) == []
    assert columns(gallery, [])["id"] == []
