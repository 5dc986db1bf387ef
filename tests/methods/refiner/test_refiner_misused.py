"""Wrong use of a Refiner raises an error at once, with the remedy."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from boxmend.errors import UsageError
from boxmend.methods.refiner import Refiner
from boxmend.runs.settings import MendSettings, TrainSettings
from tests.methods.refiner.refiner_scenes import (
    NUM_ANNOTATIONS,
    NUM_LABELS,
    ByWidth,
    ModelByHand,
    blank,
    no_proposals,
    targets,
)

MAPS = {"0": torch.zeros(2, 1, 1, 1)}


def refiner_of(model: nn.Module | None = None, **changes: Any) -> Refiner:
    sizes: dict[str, Any] = {
        "num_annotations": NUM_ANNOTATIONS,
        "num_labels": NUM_LABELS,
        "num_steps": 4,
    }
    return Refiner(model or ModelByHand(), **sizes | changes)


@pytest.mark.parametrize(
    ("image", "key", "value", "message"),
    [
        (
            0,
            "labels",
            [0, 3, 2],
            r"targets\[0\]: .* row 4 has label 0; expected 1 to 3, because 0",
        ),
        (0, "labels", [1, 4, 2], r"targets\[0\]: .* row 0 has label 4; expected 1 to 3"),
        (1, "rows", [9], r"targets\[1\]: row 9; expected .* in the dataset, 0 to 8"),
        (1, "rows", [-1], r"targets\[1\]: row -1; expected"),
        (1, "boxes", [[5.0, 5, 5, 60]], r"targets\[1\]: .* row 2 has the box .* no area"),
        (1, "boxes", [[5.0, 60, 45, 5]], r"no area; leave it out"),
        (1, "boxes", [[5.0, 5, float("inf"), 60]], r"targets\[1\]: .* row 2 has the box"),
        (1, "boxes", [[5.0, 5, float("nan"), 60]], r"targets\[1\]: .* row 2 has the box"),
        (1, "boxes", [5.0, 5, 45, 60], r"targets\[1\]: boxes \[4\], labels \[1\], rows \[1\]"),
        (0, "rows", [4, 0], r"targets\[0\]: .* rows \[2\]; expected \[n, 4\], \[n\] and \[n\]"),
    ],
)
def test_a_wrong_target_is_named(image: int, key: str, value: list[Any], message: str) -> None:
    refiner = refiner_of()
    asked = targets()
    asked[image][key] = torch.tensor(value)
    with pytest.raises(UsageError, match=message):
        refiner(blank(), MAPS, no_proposals(), asked)
    assert refiner.step == 0


@pytest.mark.parametrize("key", ["boxes", "labels", "rows"])
def test_a_target_that_lacks_something_is_named(key: str) -> None:
    asked = targets()
    del asked[1][key]
    with pytest.raises(UsageError, match=rf"targets\[1\] has no '{key}'; each target needs boxes"):
        refiner_of()(blank(), MAPS, no_proposals(), asked)


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="1 targets for 2 images"):
        refiner_of()(blank(), MAPS, no_proposals(), targets()[:1])
    with pytest.raises(UsageError, match="3 proposals for 2 images"):
        refiner_of()(blank(), MAPS, no_proposals(3), targets())
    boxes, scores = no_proposals()
    with pytest.raises(UsageError, match="1 objectness for 2 images"):
        refiner_of()(blank(), MAPS, (boxes, scores[:1]), targets())
    with pytest.raises(UsageError, match="0 proposals for 0 images"):
        refiner_of()(blank([]), MAPS, no_proposals(0), [])


def test_missing_objects_cannot_be_left_out_of_losses_of_other_code() -> None:
    settings = TrainSettings(mend=MendSettings(missing_min_score=0.3))
    with pytest.raises(
        UsageError, match=r"mend\.missing_min_score .* torchvision's losses cannot; leave"
    ):
        refiner_of(settings=settings)


def test_a_model_without_a_second_stage_is_refused() -> None:
    with pytest.raises(UsageError, match="Linear has no roi_heads; a Refiner needs a two-stage"):
        refiner_of(nn.Linear(1, 1))
    model = ModelByHand()
    del model.roi_heads.box_head
    with pytest.raises(UsageError, match=r"ModelByHand has no roi_heads.box_head"):
        refiner_of(model)


def test_a_model_of_other_classes_is_refused() -> None:
    refiner = refiner_of(ModelByHand(predictor=ByWidth(num_labels=5)))
    with pytest.raises(UsageError, match="6 classes including background, but num_labels is 3"):
        refiner(blank(), MAPS, no_proposals(), targets())


@pytest.mark.parametrize("name", ["num_annotations", "num_labels", "num_steps"])
def test_sizes_below_one_are_refused(name: str) -> None:
    sizes: dict[str, Any] = {name: 0}
    with pytest.raises(UsageError, match=f"{name} is 0; expected 1 or more"):
        refiner_of(**sizes)


def test_an_unknown_method_is_refused_with_the_known_names() -> None:
    with pytest.raises(UsageError, match="unknown method 'magic'; known: baseline, br"):
        refiner_of(settings=TrainSettings(method="magic"))


def state_without(name: str) -> dict[str, Any]:
    return {key: value for key, value in refiner_of().state_dict().items() if key != name}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (state_without("method"), "the state has no 'method'"),
        (state_without("step"), "the state has no 'step'"),
        (
            refiner_of(num_annotations=5).state_dict(),
            r"the saved state has shape \[6, 3\]",
        ),
        (
            refiner_of(settings=TrainSettings(method="mend-paper")).state_dict(),
            "the state belongs to another method, because it has no '",
        ),
    ],
)
def test_a_state_of_something_else_is_refused(state: dict[str, Any], message: str) -> None:
    refiner = refiner_of()
    before: dict[str, Tensor] = refiner.state_dict()["method"]
    with pytest.raises(UsageError, match=message):
        refiner.load_state_dict(state)
    after = refiner.state_dict()["method"]
    assert all(torch.equal(before[k], after[k]) for k in before if torch.is_tensor(before[k]))
    assert refiner.step == 0
