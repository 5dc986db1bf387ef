"""The contract of all methods that only change targets, on random batches."""

import pytest
import torch
from torch import Tensor

from boxmend.detector import SecondStageOutput
from boxmend.errors import UsageError
from boxmend.methods import table as methods
from boxmend.methods.table import (
    METHODS,
    Mend,
    MendSettings,
    MethodInputs,
    Outcome,
    PaperMethod,
    PublishedSettings,
    Rates,
    build,
)
from boxmend.runs.ledger import Judgement
from boxmend.runs.settings.presets import PAPER_METHODS
from boxmend.runs.settings.training import METHOD_SECTIONS, TrainSettings
from tests.methods.method_batches import (
    LATER,
    NUM_LABELS,
    WAITS,
    WARM_UP,
    Watch,
    WaveScorer,
    pad,
    random_batch,
)

pytestmark = pytest.mark.usefixtures("one_thread")

RATES = Rates(label=0.4, box=0.4)
ROWS = 15  # annotations in a random batch


@pytest.fixture(params=sorted({*PAPER_METHODS, "baseline", "mend"}))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fresh(name: str, num_labels: int, rates: Rates = Rates()) -> Mend | PaperMethod:  # noqa: B008  # a tuple
    method = build(name, MethodInputs(ROWS, num_labels, rates))
    assert isinstance(method, Mend | PaperMethod)
    return method


def make_method(name: str) -> Mend | PaperMethod:
    """Return a method after its first steps, so that it can judge labels."""
    method = fresh(name, NUM_LABELS, RATES)
    for seed in range(12):  # the queue then has its 76 losses
        method.refine(*random_batch(seed), WaveScorer(), LATER)
    return method


def tensors(outcome: Outcome) -> dict[str, Tensor]:
    listed = {key: value for key, value in outcome._asdict().items() if isinstance(value, Tensor)}
    for stage in ("rpn", "roi"):
        parts = getattr(outcome, stage)._asdict().items()
        listed |= {f"{stage}.{key}": value for key, value in parts if isinstance(value, Tensor)}
    return listed


def assert_same(first: Outcome, second: Outcome, count: int) -> None:
    """Equal in the first `count` annotations."""
    parts, others = tensors(first), tensors(second)
    assert parts.keys() == others.keys()
    for key, value in parts.items():
        torch.testing.assert_close(value[:, :count], others[key][:, :count], equal_nan=True)


def test_targets_are_finite_and_boxes_lie_in_the_image(name: str) -> None:
    outcome = make_method(name).refine(*random_batch(9), WaveScorer(), LATER)
    for targets in (outcome.rpn, outcome.roi):
        assert targets.boxes.isfinite().all()
        assert (targets.boxes >= 0).all()
        assert (targets.boxes <= 101).all()
        assert ((targets.labels >= 0) & (targets.labels < NUM_LABELS)).all()
        assert targets.soft is None or targets.soft.isfinite().all()
    assert all(value.isfinite() and value.dim() == 0 for value in outcome.metrics.values())


def test_padding_is_inert(name: str) -> None:
    annotations, proposals = random_batch(9)
    one, other = make_method(name), make_method(name)
    outcome = one.refine(annotations, proposals, WaveScorer(), LATER)
    wider = other.refine(pad(annotations, by=3), proposals, WaveScorer(), LATER)
    assert_same(outcome, wider, annotations.boxes.shape[1])
    assert not wider.rpn.is_box[:, -3:].any()
    assert not wider.roi.is_box[:, -3:].any()
    for key, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[key])


def test_ignored_annotations_pass_through_untouched(name: str) -> None:
    annotations, proposals = random_batch(9)
    outcome = make_method(name).refine(annotations, proposals, WaveScorer(), LATER)
    for targets in (outcome.rpn, outcome.roi):
        assert (targets.is_box & targets.is_ignored)[annotations.is_ignored].all()
        assert torch.equal(
            targets.boxes[annotations.is_ignored], annotations.boxes[annotations.is_ignored]
        )
        assert torch.equal(
            targets.labels[annotations.is_ignored], annotations.labels[annotations.is_ignored]
        )
    assert (outcome.verdict[annotations.is_ignored] == int(Judgement.UNJUDGED)).all()
    assert not outcome.is_kept[annotations.is_ignored].any()


def test_an_ignored_annotation_leaves_no_trace_in_the_state(name: str) -> None:
    annotations, proposals = random_batch(9)
    without = annotations._replace(is_ignored=torch.zeros_like(annotations.is_ignored))
    one, other = make_method(name), make_method(name)
    one.refine(annotations, proposals, WaveScorer(), LATER)
    other.refine(without, proposals, WaveScorer(), LATER)
    for key, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[key])


def test_an_annotation_marked_as_box_and_ignored_is_ignored(name: str) -> None:
    annotations, proposals = random_batch(9)
    both = annotations._replace(is_box=annotations.is_box | annotations.is_ignored)
    outcome = make_method(name).refine(annotations, proposals, WaveScorer(), LATER)
    same = make_method(name).refine(both, proposals, WaveScorer(), LATER)
    assert_same(outcome, same, ROWS)


def test_warm_up_leaves_the_annotations_as_they_are(name: str) -> None:
    annotations, proposals = random_batch(9)
    outcome = make_method(name).refine(annotations, proposals, WaveScorer(), WARM_UP)
    is_real = annotations.is_box | annotations.is_ignored
    for boxes in (outcome.boxes, outcome.matched, outcome.rpn.boxes, outcome.roi.boxes):
        assert torch.equal(boxes[is_real], annotations.boxes[is_real])
    for labels in (outcome.labels, outcome.rpn.labels, outcome.roi.labels):
        assert torch.equal(labels[is_real], annotations.labels[is_real])
    assert (outcome.verdict == int(Judgement.UNJUDGED)).all()
    assert torch.equal(outcome.is_kept, annotations.is_box)
    assert torch.equal(outcome.rpn.is_real, annotations.is_box)
    assert torch.equal(outcome.roi.is_real, annotations.is_box)


def test_no_argument_is_changed(name: str) -> None:
    annotations, proposals = random_batch(9)
    before = [part.clone() for part in (*annotations, *proposals)]
    make_method(name).refine(annotations, proposals, WaveScorer(), LATER)
    for old, new in zip(before, (*annotations, *proposals), strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0, equal_nan=True)


def test_a_method_resumes_from_its_state(name: str) -> None:
    first, second = make_method(name), fresh(name, NUM_LABELS, RATES)
    first.end_epoch(1, is_warm_up=False)
    second.load_state_dict(first.state_dict())
    for seed in (20, 21):
        batch = random_batch(seed)
        one = first.refine(*batch, WaveScorer(), LATER)
        other = second.refine(*batch, WaveScorer(), LATER)
        assert_same(one, other, ROWS)
    assert first.end_epoch(2, is_warm_up=False) == second.end_epoch(2, is_warm_up=False)


def test_a_state_from_the_end_of_an_epoch_gives_its_estimates() -> None:
    """Without a step in between, the end of an epoch after warm-up is not in warm-up."""
    for name in ("mend", "mend-paper"):
        first, second = (build(name, MethodInputs(ROWS, NUM_LABELS)) for _ in range(2))
        for seed in range(3):
            assert isinstance(first, Mend | PaperMethod)
            first.refine(*random_batch(seed), WaveScorer(), LATER)
        second.load_state_dict(first.state_dict())
        assert first.end_epoch(5, is_warm_up=False) == second.end_epoch(5, is_warm_up=False)
        ours, its = first.state_dict(), second.state_dict()
        assert all(
            torch.equal(torch.as_tensor(ours[key]), torch.as_tensor(its[key])) for key in ours
        )


def test_a_state_is_a_snapshot(name: str) -> None:
    method = make_method(name)
    state = method.state_dict()
    kept = {key: torch.as_tensor(value).clone() for key, value in state.items()}
    method.refine(*random_batch(9), WaveScorer(), LATER)
    method.end_epoch(1, is_warm_up=False)
    for key, value in kept.items():
        torch.testing.assert_close(value, torch.as_tensor(state[key]))


@pytest.mark.parametrize("num_annotations", [1, 2])
@pytest.mark.parametrize("progress", [WARM_UP, LATER], ids=["warm-up", "later"])
def test_batches_with_few_or_no_annotations_work(
    name: str, num_annotations: int, progress: methods.TrainingProgress
) -> None:
    annotations, proposals = random_batch(3, num_annotations=num_annotations)
    none = annotations._replace(
        is_box=annotations.is_box & False, is_ignored=annotations.is_ignored & False
    )
    for batch in (annotations, none):
        outcome = make_method(name).refine(batch, proposals, WaveScorer(), progress)
        assert outcome.boxes.shape == (3, num_annotations, 4)
        assert outcome.rpn.boxes.isfinite().all()
        assert all(value.isfinite() for value in outcome.metrics.values())


@pytest.mark.parametrize("progress", [WARM_UP, LATER], ids=["warm-up", "later"])
def test_nothing_waits_for_the_device(name: str, progress: methods.TrainingProgress) -> None:
    method, batch = make_method(name), random_batch(9)
    scores = WaveScorer()(torch.zeros(3, 500, 4))

    def scorer(boxes: Tensor, /) -> SecondStageOutput:
        return SecondStageOutput(*(part[:, : boxes.shape[1]] for part in scores))

    with Watch() as watch:
        method.refine(*batch, scorer, progress)
    assert watch.seen
    assert watch.seen.isdisjoint(WAITS)


def test_every_name_builds_and_an_unknown_one_lists_them() -> None:
    assert sorted(METHODS) == [
        *("baseline", "br", "ca-bbc", "cinj", "cm", "co-teaching", "disco", "lr", "mend"),
        *("mend-paper", "note-rcnn", "oa-mil", "pseudo"),
    ]
    with pytest.raises(UsageError, match=r"unknown method 'mends'; known: baseline, br, .*pseudo"):
        build("mends", MethodInputs(1, 1))


def test_every_method_has_its_section_of_the_settings() -> None:
    usual = TrainSettings()
    assert {name: spec.settings for name, spec in METHODS.items()} == {
        name: type(getattr(usual, section)) for name, section in METHOD_SECTIONS.items()
    }


@pytest.mark.parametrize(
    ("name", "other"),
    [("mend", PublishedSettings()), ("lr", MendSettings()), ("disco", MendSettings())],
)
def test_settings_of_the_other_kind_are_refused(name: str, other: object) -> None:
    with pytest.raises(UsageError, match=f"{name} takes .*Settings, not .*Settings"):
        build(name, MethodInputs(1, 1, settings=other))


def test_mend_is_made_from_its_settings_and_the_known_rates() -> None:
    method = build(
        "mend", MethodInputs(1, 3, Rates(label=0.2, box=0.0), MendSettings(vote_min_iou=0.5))
    )
    assert isinstance(method, methods.Mend)
    assert method.settings == MendSettings(vote_min_iou=0.5)
    assert method.rates == Rates(label=0.2, box=0.0)


def test_a_single_class_works(name: str) -> None:
    method = fresh(name, num_labels=1)
    annotations, proposals = random_batch(1)
    annotations = annotations._replace(labels=torch.zeros_like(annotations.labels))
    outcome = method.refine(annotations, proposals, WaveScorer(num_labels=1), LATER)
    method.end_epoch(0, is_warm_up=False)
    assert not outcome.roi.labels.any()


def test_all_public_names_exist() -> None:
    assert all(getattr(methods, public) is not None for public in methods.__all__)
