"""The figure of losses: bins, threshold and panels against numbers worked out by hand."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from boxmend.web.report.figures.contested import contested_thresholds
from boxmend.web.report.figures.losses import losses
from boxmend.web.report.record import Figure, RunRecord
from tests.fabricated_runs import BOXES, DISCARDED, KEPT, RELABELLED, UNJUDGED
from tests.web.report.drawn_records import made_dataset, made_record, seen, telling_record
from tests.web.report.read_drawings import found, numbers, texts


def draw_figure(record: RunRecord) -> Figure:
    figure = losses(record)
    assert figure is not None
    return figure


def count_bars(figure: Figure, run: str = "made-up") -> dict[str, dict[int, int]]:
    """By group: the number of each bin that holds anything, with how much."""
    bins: dict[str, dict[int, int]] = {}
    groups = dict.fromkeys(row[1] for row in figure.rows)
    for group in groups:
        of_group = [row for row in figure.rows if row[0] == run and row[1] == group]
        bins[str(group)] = {k: int(row[4]) for k, row in enumerate(of_group) if row[4]}
    return bins


def test_losses_fall_into_bins_that_grow_by_one_factor() -> None:
    # Of 0.25, 0.75, 2.5 and 3.5 the axis goes from 0.2 to 5 in 30 bins: a factor of 25^(1/30)
    # each, so loss l is in bin ln(l / 0.2) / 0.1073: 2.08, 12.3, 23.5 and 26.7.
    figure = draw_figure(telling_record())
    assert count_bars(figure) == {"right": {2: 1, 12: 1}, "wrong": {23: 1, 26: 1}}
    right = [row for row in figure.rows if row[1] == "right"]
    assert len(right) == 30
    assert right[0][2] == 0
    assert right[1][2] == pytest.approx(0.2 * 25 ** (1 / 30))
    assert right[-1][3] is None  # open: all above is in it
    assert right[2][4:] == (1, 0.25, 2.0)


def test_the_threshold_is_at_its_place_on_the_axis() -> None:
    figure = draw_figure(telling_record())
    line = next(one for one in found(figure.svg, "line", "ink") if one.get("x1") == one.get("x2"))
    # The axis starts at 48 and is 416 wide: 48 + 416 * ln(2 / 0.2) / ln(25) = 345.58
    assert numbers(line, "x1") == [pytest.approx(345.58, abs=0.01)]
    assert "2" in texts(figure.svg)


def test_bins_are_drawn_as_high_as_their_share() -> None:
    figure = draw_figure(telling_record())
    outline = found(figure.svg, "path", "series-1")[0].attrib["d"]
    heights = {float(step.split()[1]) for step in outline.strip("MZ").split("L")}
    # Each of the four losses is a quarter; the axis ends at 1.08 quarters, 190 above its foot.
    assert max(heights) - min(heights) == pytest.approx(190 / 1.08, abs=0.02)


def test_without_truth_the_groups_are_accepted_and_rejected() -> None:
    figure = draw_figure(replace(telling_record(), truth=None))
    assert count_bars(figure) == {"accepted": {2: 1, 12: 1}, "rejected": {23: 1, 26: 1}}
    assert figure.title == "Losses of accepted and rejected labels"
    assert "50 % of the labels were rejected" in figure.caption


def test_the_caption_says_how_many_of_the_right_and_the_wrong_were_rejected() -> None:
    caption = draw_figure(telling_record()).caption
    assert "0 % of the right labels and 100 % of the wrong labels were rejected" in caption


def test_only_the_last_epoch_counts() -> None:
    visits = [seen(0, 0, loss=9.0), seen(1, 0, loss=1.0), seen(1, 1, loss=2.0)]
    assert (
        sum(sum(bins.values()) for bins in count_bars(draw_figure(made_record(visits))).values())
        == 2
    )


def test_infinite_and_huge_losses_are_in_the_last_bin_and_the_caption() -> None:
    dataset = made_dataset([BOXES[0]] * 1000, [0] * 1000)
    visits = [seen(0, row, KEPT, loss=1.0 + row / 1000, threshold=1.5) for row in range(997)]
    visits += [seen(0, 997, KEPT, loss=inf), seen(0, 998, KEPT, loss=1e30)]
    figure = draw_figure(made_record(visits, dataset=dataset))
    # The axis goes from 1 to 2. Its last bin begins at 2^(29/30) = 1.9543: the rows from 955 to 996
    # are in it, 42 of them, and the two that lie beyond.
    assert figure.rows[-1][4] == 44
    assert "The last bin also holds 2 losses above 2." in figure.caption
    assert "2+" in texts(figure.svg)
    assert "2" not in texts(figure.svg)
    assert sum(row[4] for row in figure.rows if isinstance(row[4], int)) == 999


def test_a_tick_too_near_to_the_open_end_makes_way_for_it() -> None:
    dataset = made_dataset([BOXES[0]] * 1000, [0] * 1000)
    visits = [seen(0, row, KEPT, loss=0.012 if row < 500 else 15.0) for row in range(999)]
    visits.append(seen(0, 999, KEPT, loss=inf))
    svg = draw_figure(made_record(visits, dataset=dataset)).svg
    # From 0.01 to 20 is a factor of 2000; 10 is ln 2 / ln 2000 = 9 % of the axis from the end.
    shown = texts(svg)
    assert {"0.01", "0.1", "1", "20+"} <= set(shown)
    assert "10" not in shown


@pytest.mark.parametrize("threshold", [inf, nan, 1e20])
def test_a_threshold_that_is_none_or_far_away_is_not_drawn(threshold: float) -> None:
    visits = [seen(0, row, KEPT, loss=1.0 + row, threshold=threshold) for row in range(4)]
    svg = draw_figure(made_record(visits)).svg
    assert [one for one in found(svg, "line", "ink") if one.get("x1") == one.get("x2")] == []
    assert "threshold" not in texts(svg)


def test_losses_that_are_all_zero_still_have_an_axis() -> None:
    figure = draw_figure(made_record([seen(0, row, KEPT, loss=0.0) for row in range(3)]))
    assert count_bars(figure) == {"accepted": {0: 3}}


def test_runs_side_by_side_share_their_axes_and_those_without_losses_are_passed_over() -> None:
    first = telling_record()
    bare = made_record([seen(0, 0, UNJUDGED)], name="bare", truth=first.truth)
    second = replace(first, name="second")
    figure = draw_figure(replace(first, beside=(bare, second)))
    assert dict.fromkeys(row[0] for row in figure.rows) == {"made-up": None, "second": None}
    assert count_bars(figure, "second") == count_bars(figure)
    names = [one for one in found(figure.svg, "text") if one.text in ("made-up", "second")]
    assert numbers(names[0], "y") == numbers(names[1], "y")
    starts = [
        float(path.attrib["d"][1:].split()[0]) for path in found(figure.svg, "path", "series-1")
    ]
    # Two panels of (480 - 48 - 16 - 40) / 2 = 188 with a gap of 40.
    assert starts[2] - starts[0] == pytest.approx(228, abs=0.02)


def test_where_one_truth_is_missing_all_panels_go_by_verdicts() -> None:
    first = telling_record()
    figure = draw_figure(replace(first, beside=(replace(first, name="second", truth=None),)))
    assert {row[1] for row in figure.rows} == {"accepted", "rejected"}


def test_a_run_without_losses_has_no_such_figure() -> None:
    assert losses(made_record([seen(0, 0, UNJUDGED)])) is None
    assert losses(made_record([])) is None


def test_unjudged_losses_are_a_group_of_their_own() -> None:
    visits = [seen(0, 0, UNJUDGED, loss=1.0), seen(0, 1, KEPT, loss=2.0)]
    assert {*count_bars(draw_figure(made_record(visits)))} == {"accepted", "not judged"}


def test_contested_thresholds_are_those_nearest_to_their_losses() -> None:
    losses_of = np.array([0.1, 1.4, 5.0, nan, 1.0, inf], np.float32)
    thresholds = np.array([4.0, 1.5, 2.0, 7.0, inf, inf], np.float32)
    # Distances 3.9, 0.1 and 3.0 are finite; a tenth of three, rounded up, is one: 1.5.
    assert contested_thresholds(losses_of, thresholds).tolist() == [1.5]
    assert len(contested_thresholds(losses_of[:0], thresholds[:0])) == 0


def test_with_individual_thresholds_the_line_is_their_contested_median() -> None:
    dataset = made_dataset([BOXES[0]] * 20, [0] * 20)
    visits = [seen(0, row, KEPT, loss=0.1, threshold=6.0) for row in range(18)]
    visits += [seen(0, 18, KEPT, loss=1.4, threshold=1.5)]
    visits += [seen(0, 19, RELABELLED, 1, loss=1.8, threshold=1.7)]
    figure = draw_figure(made_record(visits, dataset=dataset))
    assert figure.rows[0][6] == pytest.approx((1.5 + 1.7) / 2)
    assert "Each label has its own threshold" in figure.caption
    assert "Each label" not in draw_figure(telling_record()).caption


def test_a_discarded_label_counts_as_rejected() -> None:
    visits = [seen(0, 0, DISCARDED, loss=1.0), seen(0, 1, KEPT, loss=2.0)]
    bins = count_bars(draw_figure(made_record(visits)))
    assert {group: sum(counts.values()) for group, counts in bins.items()} == {
        "accepted": 1,
        "rejected": 1,
    }
