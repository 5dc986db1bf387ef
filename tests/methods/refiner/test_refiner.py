"""The refinement in a loop of one's own: the same as in ours, in torchvision's words."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boxmend
from boxmend.detector import RoiSample
from boxmend.errors import UsageError
from boxmend.methods.refiner import RefinedTargets, Refiner
from boxmend.methods.table import (
    METHODS,
    BatchAnnotations,
    Mend,
    PaperMethod,
    TrainingProgress,
    build_from,
)
from boxmend.runs.judgement import Judgement
from boxmend.runs.settings import MendSettings, PublishedSettings, TrainSettings, resolve_settings
from tests.methods.refiner.refiner_scenes import (
    NUM_ANNOTATIONS,
    NUM_LABELS,
    SIZES,
    ModelByHand,
    blank,
    listed,
    lively_detector,
    no_proposals,
    seen,
    targets,
)

PEERS = ("ca-bbc", "co-teaching", "disco", "note-rcnn", "oa-mil")  # with losses of their own
SERVED = sorted(METHODS.keys() - set(PEERS))

MAPS = {"0": torch.zeros(2, 1, 1, 1)}


def refiner_of(model: nn.Module, num_steps: int = 4, **settings: Any) -> Refiner:
    return Refiner(
        model,
        num_annotations=NUM_ANNOTATIONS,
        num_labels=NUM_LABELS,
        num_steps=num_steps,
        settings=TrainSettings(**settings),
    )


def annotations() -> BatchAnnotations:
    """What `targets` has, padded by hand as our loop would have it."""
    nowhere = [0.0, 0.0, 0.0, 0.0]
    return BatchAnnotations(
        boxes=torch.tensor(
            [
                [[10.0, 10, 50, 50], [30, 20, 90, 80], [60, 60, 80, 95]],
                [[5.0, 5, 45, 60], nowhere, nowhere],
            ]
        ),
        labels=torch.tensor([[0, 2, 1], [1, 0, 0]]),
        is_box=torch.tensor([[True, True, True], [True, False, False]]),
        is_ignored=torch.zeros(2, 3, dtype=torch.bool),
        rows=torch.tensor([[4, 0, 7], [2, -1, -1]]),
        sizes=torch.tensor(SIZES),
    )


def rows_of(lists: list[dict[str, Tensor]]) -> list[list[int]]:
    return [one["rows"].tolist() for one in lists]


@pytest.mark.parametrize(
    ("name", "detector"),
    [*((name, "tiny") for name in SERVED), ("mend", "resnet18"), ("br", "resnet18")],
)
def test_a_refiner_equals_the_method_in_the_training_loop(name: str, detector: str) -> None:
    made = lively_detector(detector)
    images, features, proposals = seen(made)
    settings = TrainSettings(method=name, warm_up=0.5, mend=MendSettings(raw_box_share=0.4))
    method = build_from(resolve_settings(settings), NUM_ANNOTATIONS, NUM_LABELS, "cpu")
    assert isinstance(method, Mend | PaperMethod)
    refiner = refiner_of(
        made.network, method=name, warm_up=0.5, mend=MendSettings(raw_box_share=0.4)
    )
    for step, left in enumerate((2, 1, 0, 0)):
        refined = refiner(images, features.maps, listed(proposals), targets())
        with torch.no_grad():
            expected = method.refine(
                annotations(),
                proposals,
                lambda boxes: made.score(features, boxes, torch.tensor(SIZES)),
                TrainingProgress(step // 2, step, 4, left),
            )
        result = refined.outcome
        for part in ("verdict", "labels", "num_candidates", "is_kept"):
            assert torch.equal(getattr(result, part), getattr(expected, part)), part
        for part in ("loss", "threshold", "confidence", "matched", "boxes"):
            torch.testing.assert_close(
                getattr(result, part), getattr(expected, part), atol=1e-3, rtol=1e-4, equal_nan=True
            )
        for ours, theirs in ((result.rpn, expected.rpn), (result.roi, expected.roi)):
            torch.testing.assert_close(ours.soft, theirs.soft, atol=1e-4, rtol=1e-4)
            assert torch.equal(ours.is_real, theirs.is_real)
        if step % 2:
            assert dict(refiner.end_epoch()) == pytest.approx(
                dict(method.end_epoch(step // 2, is_warm_up=left > 0)), abs=1e-4
            )
    assert (refiner.step, refiner.epoch) == (4, 2)


def test_in_warm_up_targets_stay_as_they_are() -> None:
    refiner = refiner_of(ModelByHand(), warm_up=0.5, box_noise=0.4)
    refined = refiner(blank(), MAPS, no_proposals(), targets())
    for lists in (refined.rpn, refined.roi):
        for one, expected in zip(lists, targets(), strict=True):
            assert one.keys() == expected.keys()
            assert all(torch.equal(one[key], expected[key]) for key in expected)
    assert (refined.record.verdict == int(Judgement.UNJUDGED)).all()


def test_labels_that_the_heads_contradict_change_after_warm_up() -> None:
    """Boxes 40, 60, 20 and 40 wide are 3, 3, 2 and 3 to the heads, and were 1, 3, 2 and 2."""
    refiner = refiner_of(ModelByHand(), warm_up=0, label_noise=0.4, box_noise=0.0)
    refined = refiner(blank(), MAPS, no_proposals(), targets())
    assert [one["labels"].tolist() for one in refined.roi] == [[3, 3, 2], [3]]
    assert refined.record.rows.tolist() == [4, 0, 7, 2]
    assert refined.record.old_labels.tolist() == [1, 3, 2, 2]
    assert refined.record.new_labels.tolist() == [3, 3, 2, 3]
    kept, relabelled = int(Judgement.KEPT), int(Judgement.RELABELLED)
    assert refined.record.verdict.tolist() == [relabelled, kept, kept, relabelled]
    as_given = torch.cat([target["boxes"] for target in targets()])
    assert torch.equal(refined.record.final_boxes, as_given)
    soft = torch.cat([one["soft"] for one in refined.roi])
    assert soft.shape == (4, 1 + NUM_LABELS)
    assert (soft[:, 0] == 0).all()
    assert (soft[:, 1:].argmax(-1) + 1).tolist() == [3, 3, 2, 3]
    torch.testing.assert_close(soft.sum(-1), torch.ones(4))
    # p(3) = e^6 / (e^6 + 2) among the classes, T[3, 1] = 0.2 and T[1, 1] = 0.6
    odds = torch.tensor([0.6, 0.2, 403.4288 * 0.2])
    torch.testing.assert_close(soft[0, 1:], odds / odds.sum(), atol=1e-4, rtol=1e-3)


def test_a_box_moves_by_alpha_to_the_proposal_that_fits_it() -> None:
    """Centre matching alone: b* = 0.6 b + 0.4 p, for a proposal two pixels to the right."""
    refiner = refiner_of(ModelByHand(), method="cm", warm_up=0, box_noise=0.4)
    proposal = torch.tensor([[12.0, 10, 52, 50]])
    proposals = [proposal, torch.zeros(0, 4)], [torch.tensor([0.9]), torch.zeros(0)]
    refined = refiner(blank(), MAPS, proposals, targets())
    expected = torch.tensor([[10.8, 10, 50.8, 50], [30, 20, 90, 80], [60, 60, 80, 95]])
    for lists in (refined.rpn, refined.roi):
        torch.testing.assert_close(lists[0]["boxes"], expected)
        assert torch.equal(lists[1]["boxes"], targets()[1]["boxes"])
    assert refined.record.num_candidates.tolist() == [1, 0, 0, 0]
    assert "soft" not in refined.roi[0]


def test_discarded_annotations_are_left_out_with_all_their_fields() -> None:
    """After a step of warm-up T is the lower of two losses; that of the labels 1 and 2 is higher.

    The heads predict 3, 3, 2 and 3 where the labels are 1, 3, 2 and 2.
    """
    refiner = refiner_of(
        ModelByHand(),
        method="cinj",
        warm_up=0.25,
        label_noise=0.4,
        published=PublishedSettings(queue_length=4, discarded="rpn_only"),
    )
    asked = targets()
    asked[0] |= {"area": torch.tensor([1.0, 2, 3]), "image_id": torch.tensor([8])}
    refiner(blank(), MAPS, no_proposals(), asked)
    refined = refiner(blank(), MAPS, no_proposals(), asked)
    assert rows_of(refined.roi) == [[0, 7], []]
    assert rows_of(refined.rpn) == [[4, 0, 7], [2]]
    assert refined.roi[0]["labels"].tolist() == [3, 2]
    assert refined.roi[0]["area"].tolist() == [2, 3]
    assert refined.roi[0]["image_id"].tolist() == [8]
    assert refined.roi[1]["boxes"].shape == (0, 4)
    assert refined.record.is_kept.tolist() == [False, True, True, False]
    assert [place.tolist() for place in refined.places] == [[1, 2], []]


def test_crowds_are_not_touched_and_not_trained_on() -> None:
    refiner = refiner_of(ModelByHand(), warm_up=0, label_noise=0.4)
    asked = targets()
    asked[0]["iscrowd"] = torch.tensor([1, 0, 0])
    refined = refiner(blank(), MAPS, no_proposals(), asked)
    assert rows_of(refined.rpn) == rows_of(refined.roi) == [[0, 7], [2]]
    assert refined.record.verdict[0] == int(Judgement.UNJUDGED)
    assert refined.record.is_kept.tolist() == [False, True, True, True]
    assert refined.record.new_labels.tolist() == [1, 3, 2, 3]


@pytest.mark.parametrize("name", SERVED)
def test_images_without_annotations_are_fine(name: str) -> None:
    refiner = refiner_of(ModelByHand(), method=name, warm_up=0.5)
    nothing = {
        "boxes": torch.zeros(0, 4),
        "labels": torch.zeros(0, dtype=torch.int64),
        "rows": torch.zeros(0, dtype=torch.int64),
    }
    for asked in ([nothing, nothing], [targets()[0], nothing]) * 2:
        refined = refiner(blank(), MAPS, no_proposals(), asked)
        assert refined.roi[1]["boxes"].shape == (0, 4)
        assert refined.outcome.boxes.shape[1] >= 1  # as in our loop, which has never none
        logits = torch.zeros(3, 1 + NUM_LABELS)
        labels = [torch.tensor([0]), torch.tensor([0, 0])]
        wanted = refiner.class_targets(refined, logits, labels, labels)
        assert wanted.tolist() == [[1, 0, 0, 0]] * 3


def test_other_number_types_are_accepted_and_boxes_keep_theirs() -> None:
    refiner = refiner_of(ModelByHand(), warm_up=0, label_noise=0.4)
    asked = [
        {
            "boxes": target["boxes"].double(),
            "labels": target["labels"].int(),
            "rows": target["rows"].int(),
        }
        for target in targets()
    ]
    refined = refiner(blank(), MAPS, no_proposals(), asked)
    assert refined.roi[0]["boxes"].dtype == torch.float64
    assert refined.roi[0]["labels"].dtype == torch.int64  # torchvision takes no other
    assert refined.record.new_labels.tolist() == [3, 3, 2, 3]


def test_a_single_feature_map_is_accepted_like_a_dict_of_one() -> None:
    answers = []
    for maps in (MAPS, MAPS["0"]):
        refiner = refiner_of(ModelByHand(), warm_up=0, label_noise=0.4)
        answers.append(refiner(blank(), maps, no_proposals(), targets()).record.loss)
    assert torch.equal(answers[0], answers[1])


def samples(refined: RefinedTargets) -> tuple[list[Tensor], list[Tensor]]:
    """Sampled RoIs: of the first image of annotations 2, none and 0, of the second none and 0."""
    labels = [one["labels"] for one in refined.roi]
    first = torch.stack([labels[0][2], torch.tensor(0), labels[0][0]])
    second = torch.stack([torch.tensor(0), labels[1][0]])
    return [first, second], [torch.tensor([2, 1, 0]), torch.tensor([0, 0])]


def test_class_targets_are_soft_rows_for_objects_and_background_for_the_rest() -> None:
    refiner = refiner_of(ModelByHand(), warm_up=0, label_noise=0.4)
    refined = refiner(blank(), MAPS, no_proposals(), targets())
    logits = torch.zeros(5, 1 + NUM_LABELS, requires_grad=True)
    wanted = refiner.class_targets(refined, logits, *samples(refined))
    soft = [one["soft"] for one in refined.roi]
    background = torch.tensor([1.0, 0, 0, 0])
    expected = torch.stack([soft[0][2], background, soft[0][0], background, soft[1][0]])
    torch.testing.assert_close(wanted, expected)
    assert not wanted.requires_grad


def test_class_targets_of_hard_methods_are_the_labels() -> None:
    refiner = refiner_of(ModelByHand(), method="baseline", warm_up=0)
    refined = refiner(blank(), MAPS, no_proposals(), targets())
    wanted = refiner.class_targets(refined, torch.zeros(5, 4), *samples(refined))
    assert wanted.argmax(-1).tolist() == [2, 0, 1, 0, 2]
    assert (wanted.sum(-1) == 1).all()


def test_class_targets_of_warm_up_are_those_of_the_method() -> None:
    refiner = refiner_of(ModelByHand(), warm_up=1.0, label_noise=0.4)
    refined = refiner(blank(), MAPS, no_proposals(), targets())
    labels, matched = samples(refined)
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    actual = refiner.class_targets(refined, logits, labels, matched)
    method = build_from(
        resolve_settings(TrainSettings(label_noise=0.4)), NUM_ANNOTATIONS, NUM_LABELS, "cpu"
    )
    assert isinstance(method, Mend)
    padding = torch.full((1, 4), 77.0)
    rois = RoiSample(
        boxes=torch.zeros(2, 3, 4),
        matched=torch.tensor([[2, 1, 0], [0, 0, 0]]),
        is_sampled=torch.tensor([[True, True, True], [True, True, False]]),
        is_positive=torch.tensor([[True, False, True], [False, True, False]]),
        labels=torch.tensor([[1, 0, 0], [0, 1, 0]]),
        deltas=torch.zeros(2, 3, 4),
    )
    padded_logits = torch.stack([logits[:3], torch.cat([logits[3:], padding])])
    warm_up = TrainingProgress.at(0, 0, 1, warm_up=1.0)
    expected = method.class_targets(padded_logits, rois, refined.outcome.roi, warm_up)
    assert expected is not None
    torch.testing.assert_close(actual, torch.cat([expected[0], expected[1, :2]]))
    assert 0 < actual[0, 1] < actual[0, 2] < 1  # soft, though the labels are hard


@pytest.mark.parametrize("name", PEERS)
def test_methods_with_losses_of_their_own_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}, which computes its own losses.*boxmend train"):
        refiner_of(ModelByHand(), method=name)


def test_a_state_carries_everything_over() -> None:
    def batch(refiner: Refiner) -> Tensor:
        return refiner(blank(), MAPS, no_proposals(), targets()).record.confidence

    first = refiner_of(ModelByHand(), warm_up=0.5)
    for _ in range(3):
        batch(first)
    first.end_epoch()
    state = first.state_dict()
    second = refiner_of(ModelByHand(), warm_up=0.5)
    second.load_state_dict(state)
    assert (second.step, second.epoch) == (3, 1)
    assert torch.equal(batch(first), batch(second))
    fresh = refiner_of(ModelByHand(), warm_up=0)
    assert not torch.equal(batch(fresh), batch(second))


def test_scoring_does_not_change_the_modes_and_statistics_of_the_heads() -> None:
    head = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Dropout(1.0))
    model = ModelByHand(head)
    model.train()
    head[0].eval()  # as one who freezes it would have it
    before = {key: value.clone() for key, value in head.state_dict().items()}
    refined = refiner_of(model, warm_up=0)(blank(), MAPS, no_proposals(), targets())
    assert refined.record.new_labels.tolist() == [3, 3, 2, 3]  # as it sees without dropout
    assert [one.training for one in (head, *head)] == [True, False, True, True]
    assert model.roi_heads.box_predictor.training
    assert all(torch.equal(before[key], value) for key, value in head.state_dict().items())


def test_the_name_is_public() -> None:
    assert boxmend.Refiner is Refiner


def test_a_preset_counts_as_in_a_training() -> None:
    """With the preset of the paper mend is mend-paper, which has no soft labels."""
    for preset, has_soft in (("default", True), ("paper", False)):
        refiner = refiner_of(ModelByHand(), preset=preset, warm_up=0, label_noise=0.4)
        refined = refiner(blank(), MAPS, no_proposals(), targets())
        assert ("soft" in refined.roi[0]) == has_soft
