"""Settling the visits of an annotation, against cases worked out on paper."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.runs.ledger import Judgement
from boxmend.runs.settling import Settlement, num_settling_visits, settle
from tests.fabricated_runs import DISCARDED, KEPT, RELABELLED, UNJUDGED, Visit, drawn, made_history

VAN, TRUCK, BUS = range(3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Annotation 0 is a van at (10, 10, 30, 50), 1 a truck, 2 a bus, 3 a van; images of 100."""
    return load(drawn(tmp_path_factory.mktemp("settling"), "coco"))


def settle_visits(
    dataset: Dataset, visits: Sequence[Visit], *, epochs: int, warm_up_epochs: int = 0
) -> Settlement:
    history = made_history(dataset, visits, warm_up_epochs)
    if visits:
        history.epochs[-1] = epochs - 1
    return settle(dataset, history)


def votes(*visits: tuple[Judgement, int | None, float]) -> list[Visit]:
    """Visits of annotation 0, one an epoch: (verdict, label, confidence)."""
    return [Visit(epoch, 0, *one) for epoch, one in enumerate(visits)]


def visits_with_boxes(*boxes: tuple[float, float, float, float] | None) -> list[Visit]:
    """Visits of annotation 0, one an epoch, with the box it was trained on."""
    return [Visit(epoch, 0, confidence=0.5, box=one) for epoch, one in enumerate(boxes)]


@pytest.mark.parametrize(("epochs", "visits"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (12, 4)])
def test_a_third_of_the_epochs_counts(epochs: int, visits: int) -> None:
    assert num_settling_visits(epochs) == visits


def test_without_visits_everything_stays(dataset: Dataset) -> None:
    result = settle_visits(dataset, [], epochs=0)
    assert result.labels.tolist() == dataset.labels.tolist()
    assert result.boxes.tolist() == dataset.boxes.tolist()
    assert not result.is_unsure.any()
    assert result.num_judged.tolist() == result.num_moved.tolist() == [0] * 4
    assert np.isnan(result.label_confidences).all()
    assert np.isnan(result.box_confidences).all()


def test_most_of_the_last_visits_decide_and_their_confidence_counts(dataset: Dataset) -> None:
    visits = votes(
        (RELABELLED, BUS, 1.0),  # epochs 0 to 5 of 9 are too long ago
        (RELABELLED, BUS, 1.0),
        (RELABELLED, BUS, 1.0),
        (RELABELLED, BUS, 1.0),
        (RELABELLED, BUS, 1.0),
        (RELABELLED, BUS, 1.0),
        (RELABELLED, TRUCK, 0.75),
        (RELABELLED, TRUCK, 0.25),
        (KEPT, None, 1.0),
    )
    result = settle_visits(dataset, visits, epochs=9)
    assert result.labels.tolist() == [TRUCK, TRUCK, BUS, VAN]
    assert result.label_confidences[0] == 0.5  # of 0.75 and 0.25
    assert (result.num_agreeing[0], result.num_judged[0]) == (2, 3)
    assert not result.is_unsure.any()


@pytest.mark.parametrize(
    ("last", "label", "is_unsure"),
    [
        ((RELABELLED, BUS, 0.5), BUS, False),
        ((KEPT, None, 0.5), VAN, False),
        ((DISCARDED, TRUCK, 0.5), VAN, True),
    ],
)
def test_of_equally_many_the_last_word_holds(
    dataset: Dataset, last: tuple[Judgement, int | None, float], label: int, is_unsure: bool
) -> None:
    first = [(RELABELLED, BUS, 0.5), (KEPT, None, 0.5), (DISCARDED, TRUCK, 0.5)]
    first.remove(last)
    result = settle_visits(dataset, votes(*first, last), epochs=7)  # three visits
    assert result.labels[0] == label
    assert result.is_unsure.tolist() == [is_unsure, False, False, False]
    assert (result.num_agreeing[0], result.num_judged[0]) == (1, 3)


def test_two_discards_are_unsure_whatever_label_they_mention(dataset: Dataset) -> None:
    visits = votes((DISCARDED, BUS, 0.4), (DISCARDED, TRUCK, 0.2), (RELABELLED, BUS, 0.9))
    result = settle_visits(dataset, visits, epochs=7)
    assert result.is_unsure[0]
    assert result.labels[0] == VAN
    assert result.label_confidences[0] == pytest.approx(0.3)


def test_unjudged_visits_and_those_of_warm_up_have_no_say(dataset: Dataset) -> None:
    visits = votes(
        (RELABELLED, TRUCK, 0.5),
        (RELABELLED, BUS, 0.75),
        (UNJUDGED, None, 1.0),
        (UNJUDGED, None, 1.0),
    )
    result = settle_visits(
        dataset, visits, epochs=4, warm_up_epochs=1
    )  # two visits, one of them early
    assert result.labels[0] == BUS
    assert (result.num_agreeing[0], result.num_judged[0]) == (1, 1)
    nothing = settle_visits(dataset, visits, epochs=4, warm_up_epochs=2)
    assert nothing.labels[0] == VAN
    assert nothing.num_judged[0] == 0


def test_a_visit_without_confidence_votes_all_the_same(dataset: Dataset) -> None:
    nan = float("nan")
    visits = votes((RELABELLED, BUS, nan), (RELABELLED, BUS, 0.5), (KEPT, None, nan))
    result = settle_visits(dataset, visits, epochs=7)
    assert result.labels[0] == BUS
    assert result.label_confidences[0] == 0.5
    alone = settle_visits(dataset, visits[:1], epochs=7)
    assert alone.labels[0] == BUS
    assert np.isnan(alone.label_confidences[0])


def test_annotations_are_settled_each_for_itself(dataset: Dataset) -> None:
    visits = [
        Visit(0, 2, RELABELLED, TRUCK, 0.5),
        Visit(0, 0, RELABELLED, BUS, 0.25),
        Visit(1, 3, DISCARDED, VAN, 0.125),
        Visit(1, 2, RELABELLED, TRUCK, 1.0),
    ]
    result = settle_visits(dataset, visits, epochs=4)
    assert result.labels.tolist() == [BUS, TRUCK, TRUCK, VAN]
    assert result.num_agreeing.tolist() == [1, 0, 2, 1]
    assert result.label_confidences[[0, 2, 3]].tolist() == [0.25, 0.75, 0.125]
    assert result.is_unsure.tolist() == [False, False, False, True]


def test_the_box_is_the_mean_of_the_last_that_moved(dataset: Dataset) -> None:
    visits = visits_with_boxes((0, 0, 5, 5), (12, 10, 30, 50), (10, 10, 30, 50), (14, 11, 30, 50.5))
    result = settle_visits(dataset, visits, epochs=9)  # three visits, the second of which stays
    assert result.boxes[0].tolist() == [13, 10.5, 30, 50.25]
    assert result.num_moved.tolist() == [2, 0, 0, 0]
    assert result.box_confidences[0] == 0.5


def test_a_box_stays_where_the_last_visit_left_it(dataset: Dataset) -> None:
    result = settle_visits(dataset, visits_with_boxes((12, 10, 30, 50), None), epochs=6)
    assert result.boxes[0].tolist() == [10, 10, 30, 50]
    assert result.num_moved[0] == 0


def test_a_visit_that_was_not_trained_on_has_no_say_about_the_box(dataset: Dataset) -> None:
    visits = [
        Visit(0, 0, box=(14, 10, 30, 50)),
        Visit(1, 0, DISCARDED, box=(0, 0, 9, 9), is_kept=False),
    ]
    assert settle_visits(dataset, visits, epochs=4).boxes[0].tolist() == [14, 10, 30, 50]
    assert settle_visits(dataset, visits[1:], epochs=4).num_moved[0] == 0


def test_boxes_of_unsure_annotations_move_where_they_were_trained_on(dataset: Dataset) -> None:
    result = settle_visits(dataset, [Visit(0, 0, DISCARDED, BUS, 0.3, (14, 10, 30, 50))], epochs=1)
    assert result.is_unsure[0]
    assert result.boxes[0].tolist() == [14, 10, 30, 50]


def test_unjudged_visits_after_warm_up_move_boxes(dataset: Dataset) -> None:
    visits = [Visit(0, 0, UNJUDGED, box=(14, 10, 30, 50))]
    assert settle_visits(dataset, visits, epochs=1).num_moved[0] == 1
    assert settle_visits(dataset, visits, epochs=1, warm_up_epochs=1).num_moved[0] == 0


def test_rounding_moves_nothing(dataset: Dataset) -> None:
    # 0.01 of 40 high: IoU 0.99975; of a moved box, sides that moved by less than 0.01 stay
    near = settle_visits(dataset, visits_with_boxes((10, 10, 30, 50.01)), epochs=1)
    assert near.boxes[0].tolist() == [10, 10, 30, 50]
    assert near.num_moved[0] == 0
    moved = settle_visits(dataset, visits_with_boxes((10.008, 10.016, 30, 45.123456)), epochs=1)
    assert moved.boxes[0].tolist() == [10, 10.02, 30, 45.12]


def test_boxes_end_at_the_border_of_their_image(dataset: Dataset) -> None:
    result = settle_visits(dataset, visits_with_boxes((-3, 10, 30, 120)), epochs=1)
    assert result.boxes[0].tolist() == [0, 10, 30, 100]


def test_where_the_size_of_an_image_is_unknown_only_its_corner_cuts(dataset: Dataset) -> None:
    images = replace(dataset.images, widths=np.zeros(2, np.int64))
    unknown = replace(dataset, images=images)
    result = settle_visits(unknown, visits_with_boxes((-3, 10, 130, 120)), epochs=1)
    assert result.boxes[0].tolist() == [0, 10, 130, 100]


@pytest.mark.parametrize(
    "box", [(30, 10, 10, 50), (float("nan"), 1, 2, 3), (1, 1, float("inf"), 9), (101, 1, 120, 9)]
)
def test_what_is_no_box_moves_nothing(
    dataset: Dataset, box: tuple[float, float, float, float]
) -> None:
    result = settle_visits(dataset, visits_with_boxes(box), epochs=1)
    assert result.boxes.tolist() == dataset.boxes.tolist()
    assert result.num_moved[0] == 0


VISITS = st.lists(
    st.builds(
        Visit,
        epoch=st.integers(0, 5),
        row=st.integers(0, 3),
        verdict=st.sampled_from(list(Judgement)),
        label=st.integers(0, 2),
        confidence=st.sampled_from([0.25, 0.5, 1.0]),
        box=st.sampled_from([None, (14.0, 10.0, 30.0, 50.0), (42.0, 21.0, 61.0, 44.0)]),
        is_kept=st.booleans(),
    ),
    max_size=40,
).map(lambda visits: sorted(visits, key=lambda visit: visit.epoch))


def by_the_book(dataset: Dataset, visits: list[Visit], row: int) -> tuple[int, bool, int]:
    """Label, whether unsure, and votes of an annotation, one visit after another."""
    own = int(dataset.labels[row])
    judged = [
        visit
        for visit in visits
        if visit.row == row and visit.verdict != UNJUDGED and visit.epoch > 0
    ]
    said = [
        None if one.verdict == DISCARDED else own if one.verdict == KEPT else one.label
        for one in judged[-num_settling_visits(6) :]
    ]
    if not said:
        return own, False, 0
    counts = Counter(said)
    best = max(said, key=lambda one: (counts[one], len(said) - said[::-1].index(one)))
    return own if best is None else best, best is None, counts[best]


@settings(deadline=None, max_examples=200)
@given(VISITS)
def test_settling_agrees_with_counting_one_by_one(dataset: Dataset, visits: list[Visit]) -> None:
    result = settle_visits(dataset, visits, epochs=6, warm_up_epochs=1)
    for row in range(len(dataset)):
        expected = by_the_book(dataset, visits, row)
        actual = result.labels[row], result.is_unsure[row], result.num_agreeing[row]
        assert actual == expected
        kept = [v for v in visits if v.row == row and v.is_kept and v.epoch > 0][
            -num_settling_visits(6) :
        ]
        moved = [one.box for one in kept if one.box is not None]
        if not kept or kept[-1].box is None:
            moved = []
        assert result.num_moved[row] == len(moved)
        own = dataset.boxes[row].tolist()
        mean = np.mean(moved, axis=0).tolist() if moved else own
        assert result.boxes[row] == pytest.approx(mean, abs=0.011)


def test_settling_leaves_the_dataset_as_it_is(dataset: Dataset) -> None:
    before = dataset.labels.tolist(), dataset.boxes.tolist()
    settle_visits(dataset, [Visit(0, 0, RELABELLED, BUS, 1.0, (0, 0, 9, 9))], epochs=1)
    assert (dataset.labels.tolist(), dataset.boxes.tolist()) == before
