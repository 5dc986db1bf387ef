"""Figures by label: verdicts, confusion, AP50, and changes compared with the truth, by hand."""

from dataclasses import replace
from math import nan

import pytest

from boxmend.web.report.figures.changes import changes
from boxmend.web.report.figures.confusion import confusion
from boxmend.web.report.figures.label_ap import label_ap
from boxmend.web.report.figures.verdicts import verdicts
from boxmend.web.report.record import RunRecord
from tests.fabricated_runs import BOXES, DISCARDED, KEPT, RELABELLED, UNJUDGED
from tests.web.report.drawn_records import (
    made_dataset,
    made_record,
    made_truth,
    many_visits_record,
    seen,
    telling_record,
)
from tests.web.report.read_drawings import found, numbers, texts


def relabelled_pairs(pairs: list[tuple[int, int]], num_labels: int) -> RunRecord:
    """A record in which annotations went from one label to another."""
    names = tuple(f"n{number}" for number in range(num_labels))
    dataset = made_dataset([BOXES[0]] * len(pairs), [old for old, _ in pairs], names)
    visits = [seen(0, row, RELABELLED, new) for row, (_, new) in enumerate(pairs)]
    return made_record(visits, dataset=dataset)


def test_verdicts_are_shares_of_the_judged_by_label_the_most_doubted_first() -> None:
    figure = verdicts(telling_record())
    assert figure is not None
    assert figure.rows == [
        ("truck", 1, 0.0, 1.0, 0.0),
        ("bus", 1, 0.0, 0.0, 1.0),
        ("van", 2, 1.0, 0.0, 0.0),
    ]
    assert figure.caption.startswith("Of 4 annotations, 50 % keep their label, 25 % get another")


def test_bars_of_verdicts_are_as_long_as_their_shares() -> None:
    dataset = made_dataset(BOXES, [0, 0, 0, 0])
    visits = [seen(0, 0), seen(0, 1, RELABELLED, 1), seen(0, 2, DISCARDED), seen(0, 3)]
    figure = verdicts(made_record(visits, dataset=dataset))
    assert figure is not None
    kept, moved, gone = (
        next(one for one in reversed(found(figure.svg, "rect", css)))  # the last: no key
        for css in ("quiet", "series-2", "series-3")
    )
    x, width = numbers(kept, "x", "width")
    assert numbers(moved, "x", "width") == pytest.approx([x + width, width / 2], abs=0.02)
    assert numbers(gone, "x", "width") == pytest.approx([x + 1.5 * width, width / 2], abs=0.02)
    assert len({one.get("fill") for one in (kept, moved, gone)}) == 3  # not by colour alone


def test_where_nothing_was_judged_there_are_no_verdicts() -> None:
    assert verdicts(made_record([seen(0, row, UNJUDGED) for row in range(4)])) is None
    assert verdicts(made_record([])) is None


def test_with_many_labels_the_least_doubted_are_drawn_together() -> None:
    figure = verdicts(many_visits_record(2000, 2, 80))
    assert figure is not None
    assert len(figure.rows) == 80
    assert "57 others" in texts(figure.svg)
    joined = sum(row[1] for row in figure.rows[23:] if isinstance(row[1], int))
    assert f"{joined:,}" in texts(figure.svg)


def test_confusion_counts_changes_from_old_to_new() -> None:
    figure = confusion(relabelled_pairs([(0, 1), (0, 1), (2, 0), (1, 2), (0, 1)], 3))
    assert figure is not None
    assert figure.rows == [("n0", "n1", 3), ("n1", "n2", 1), ("n2", "n0", 1)]
    assert "5 annotations were relabelled; most often n0 became n1 (3 times)" in figure.caption
    cells = found(figure.svg, "rect", "heat")
    assert [float(cell.attrib["fill-opacity"]) for cell in cells] == pytest.approx(
        [0.6, 0.2533, 0.2533], abs=1e-3
    )
    # Cells are in rows by the old label: n0 to n1 in row 0, column 1; n1 to n2; n2 to n0.
    side = numbers(cells[0], "width")[0] + 1
    (x, y), second, third = (numbers(cell, "x", "y") for cell in cells)
    assert second == pytest.approx([x + side, y + side], abs=0.02)
    assert third == pytest.approx([x - side, y + 2 * side], abs=0.02)


def test_confusion_of_one_change_is_in_the_singular() -> None:
    figure = confusion(telling_record())
    assert figure is not None
    assert figure.rows == [("truck", "bus", 1)]
    assert figure.caption == "1 annotation was relabelled; most often truck became bus (once)."


def test_with_many_labels_those_with_few_changes_are_joined() -> None:
    # Labels 0 to 18 have two changes to the next; 19 to 21 one each, among themselves.
    pairs = [(label, (label + 1) % 19) for label in range(19)] * 2 + [(19, 20), (20, 21), (21, 19)]
    figure = confusion(relabelled_pairs(pairs, 22))
    assert figure is not None
    assert texts(figure.svg).count("others") == 2
    assert "n19" not in texts(figure.svg)
    assert "n18" in texts(figure.svg)
    assert len(figure.rows) == 22  # the CSV has them all
    # The three changes of the joined do not make the twos of the others pale.
    opacities = [cell.attrib["fill-opacity"] for cell in found(figure.svg, "rect", "heat")]
    assert opacities == ["0.6"] * 20
    assert [text for text in texts(figure.svg) if text.isdigit()] == ["2"] * 19 + ["3"]


def test_where_no_label_changed_there_is_no_confusion() -> None:
    assert confusion(made_record([seen(0, 0, KEPT)])) is None
    assert confusion(made_record([])) is None


def test_ap_is_sorted_by_gain_over_the_baseline() -> None:
    figure = label_ap(telling_record())
    assert figure is not None
    assert [row[0] for row in figure.rows] == ["van", "bus", "truck"]
    assert [row[3] for row in figure.rows] == pytest.approx([0.25, 0.0, -0.05])
    assert "6.7 points higher" in figure.caption  # (25 + 0 - 5) / 3
    assert "higher for 1 of 3" in figure.caption
    assert {"+25.0", "+0.0", "-5.0"} <= set(texts(figure.svg))


def test_dots_stand_at_the_ap_of_run_and_baseline() -> None:
    figure = label_ap(telling_record())
    assert figure is not None
    here = [numbers(one, "cx", "cy") for one in found(figure.svg, "circle", "series-1")][1:]
    before = [numbers(one, "cx", "cy") for one in found(figure.svg, "circle", "series-2")][1:]
    # van is at 0.5 and 0.25, truck at 0.75 and 0.8, so a quarter is 0.5 - 0.25 wide.
    quarter = here[0][0] - before[0][0]
    assert quarter > 50
    assert here[2][0] - here[0][0] == pytest.approx(quarter, abs=0.02)
    assert before[2][0] - here[2][0] == pytest.approx(quarter * 0.05 / 0.25, abs=0.02)
    assert here[0][1] == before[0][1]


def test_without_a_baseline_ap_is_sorted_by_itself() -> None:
    figure = label_ap(replace(telling_record(), baseline_ap={}))
    assert figure is not None
    assert figure.rows == [
        ("truck", 0.75, None, None),
        ("van", 0.5, None, None),
        ("bus", 0.25, None, None),
    ]
    assert figure.caption == "The mean AP50 over labels is 50.0 %."
    assert "baseline" not in texts(figure.svg)


def test_a_label_without_ap_is_left_out_and_one_without_baseline_comes_last() -> None:
    record = replace(
        telling_record(), label_ap={"a": nan, "b": 0.9, "c": 0.1}, baseline_ap={"c": 0.2, "d": 1.0}
    )
    figure = label_ap(record)
    assert figure is not None
    assert [row[0] for row in figure.rows] == ["c", "b"]
    assert label_ap(replace(record, label_ap={})) is None


def test_with_many_labels_the_largest_and_the_smallest_gains_are_drawn() -> None:
    names = [f"n{number}" for number in range(80)]
    record = replace(
        telling_record(),
        label_ap={name: 0.5 + k / 200 for k, name in enumerate(names)},
        baseline_ap=dict.fromkeys(names, 0.5),
    )
    figure = label_ap(record)
    assert figure is not None
    assert len(figure.rows) == 80
    shown = set(texts(figure.svg))
    assert {"n79", "n65", "n14", "n0", "(50 more)"} <= shown
    assert shown.isdisjoint({"n64", "n15"})


def test_changes_are_counted_by_what_the_truth_says_of_them() -> None:
    figure = changes(telling_record())
    assert figure is not None
    # One label was set right and one wrong one left; one box was mended and one spoiled.
    assert figure.rows == [
        ("labels", "right", 1, 0.25),
        ("labels", "neutral", 0, 0.0),
        ("labels", "harm", 0, 0.0),
        ("labels", "missed", 1, 0.25),
        ("boxes", "right", 1, 0.25),
        ("boxes", "neutral", 0, 0.0),
        ("boxes", "harm", 1, 0.25),
        ("boxes", "missed", 0, 0.0),
    ]
    widths = [numbers(one, "width")[0] for one in found(figure.svg, "rect", "series-1")]
    assert widths[0] == widths[1] > 100
    assert "Of 2 moved boxes, 50 % are closer to the truth" in figure.caption


def test_bars_of_changes_are_as_long_as_their_counts() -> None:
    dataset = made_dataset(BOXES, [0, 0, 0, 0])
    visits = [seen(0, 0, RELABELLED, 1), seen(0, 1, RELABELLED, 1), seen(0, 2), seen(0, 3)]
    truth = made_truth(dataset, [1, 1, 2, 0], BOXES)  # two set right, one missed
    figure = changes(made_record(visits, dataset=dataset, truth=truth))
    assert figure is not None
    right, missed = (found(figure.svg, "rect", css)[0] for css in ("series-1", "series-3"))
    assert numbers(right, "width")[0] == pytest.approx(2 * numbers(missed, "width")[0], abs=0.02)
    assert numbers(right, "x") == numbers(missed, "x")


def test_without_truth_or_changes_there_is_no_figure_of_changes() -> None:
    record = telling_record()
    assert changes(replace(record, truth=None)) is None
    unchanged = made_record([seen(0, 0)], truth=record.truth)
    assert changes(unchanged) is None
