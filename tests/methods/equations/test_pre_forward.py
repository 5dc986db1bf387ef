"""Algorithm 1 for single objects, worked out on paper from the proposals to the final box."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from boxmend.methods.equations import (
    VARIANTS,
    Annotations,
    Constants,
    Judgement,
    PaddedProposals,
    PreForward,
    RefinedBatch,
    refine_as_published,
)

BOX = [10.0, 10, 30, 30]  # center (20, 20), extent 40
FAR = [40.0, 40, 60, 60]
RIGHT, DOWN, ASIDE = [12.0, 10, 32, 30], [10.0, 12, 30, 32], [11.0, 11, 31, 31]
# All but FAR fit: D is 2 / 40, 2 / 40 and sqrt(2) / 40, and extents are the same.
PROPOSALS = [FAR, DOWN, RIGHT, ASIDE]
OBJECTNESS = [0.95, 0.8, 0.9, 0.7]
MATCHED = [
    11.0,
    10,
    31,
    30,
]  # b* = 0.5 * RIGHT + 0.5 * BOX: of those that fit, RIGHT has most objectness
# background, class 0, class 1 at the proposals by objectness: FAR, RIGHT, DOWN, ASIDE. FAR is no
# candidate, and must have no effect although it has the highest score.
AT_PROPOSALS = [[0.0, 0.99, 0.99], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7], [0.1, 0.3, 0.6]]
PLACES = 100  # for proposals; empty ones must have no effect either
REGRESSED = [  # for class 0, for class 1
    [[0.0, 0, 9, 9], [0.0, 0, 9, 9]],  # b* itself: has no part in the mean
    [[77.0, 7, 77, 7], [77.0, 7, 77, 7]],  # FAR
    [[13.0, 10, 34, 30], [99.0, 9, 99, 9]],  # RIGHT
    [[99.0, 9, 99, 9], [14.0, 13, 35, 36]],  # DOWN
    [[12.0, 10, 31, 33], [11.0, 16, 33, 33]],  # ASIDE
]


class OneObject:
    """Return scores for b* and the proposals, and record the requests."""

    def __init__(self, at_matched: list[float]):
        self.at_matched = at_matched
        self.asked: list[Tensor] = []

    def __call__(self, boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        self.asked.append(boxes)
        empty = boxes.shape[1] - 5
        scores = [self.at_matched, *AT_PROPOSALS, *[[0.0, 0.98, 0.98]] * empty]
        regressed = [*REGRESSED, *[[[66.0, 6, 66, 6]] * 2] * empty]
        return torch.tensor([scores]), torch.tensor([regressed])


def refined_one(
    scorer: PreForward,
    queue: list[float],
    judged_classes: Literal["all", "foreground"] = "all",
    judged_box: Literal["matched", "proposal", "annotation"] = "matched",
) -> tuple[RefinedBatch, Tensor]:
    return refine_as_published(
        Annotations(torch.tensor([[BOX]]), torch.tensor([[0]]), torch.ones(1, 1).bool()),
        PaddedProposals(
            torch.tensor([PROPOSALS]), torch.tensor([OBJECTNESS]), torch.ones(1, 4).bool()
        ),
        torch.tensor([[100.0, 100.0]]),
        scorer,
        torch.tensor(queue),
        Constants(
            alpha=0.5,
            acceptance=0.5,  # T is the 2nd of 4 losses
            num_candidates=4,
            judged_classes=judged_classes,
            judged_box=judged_box,
        ),
    )


@pytest.mark.parametrize(
    ("at_matched", "queue", "verdict", "label", "box"),
    [
        # L = -log 0.2 = 1.61 <= T = 2: kept; of class 0 RIGHT (0.7) and ASIDE (0.3) are the best,
        # (11 + 13 + 12) / 3, (10 + 10 + 10) / 3, (31 + 34 + 31) / 3, (30 + 30 + 33) / 3
        ([0.1, 0.2, 0.7], [1.0, 9, 9, 2], Judgement.KEPT, 0, [12, 10, 32, 31]),
        # T = 1.5: noisy, and 0.7 for class 1; of that DOWN (0.7) and ASIDE (0.6) are the best,
        # (11 + 14 + 11) / 3, (10 + 13 + 16) / 3, (31 + 35 + 33) / 3, (30 + 36 + 33) / 3
        ([0.1, 0.2, 0.7], [1.0, 9, 9, 1.5], Judgement.RELABELLED, 1, [12, 13, 33, 33]),
        # noisy, and no class has more than 0.5: b* stays
        ([0.3, 0.2, 0.5], [1.0, 9, 9, 1.5], Judgement.DISCARDED, 0, MATCHED),
    ],
    ids=["clean", "relabelled", "discarded"],
)
def test_an_object_is_refined_as_computed_by_hand(
    at_matched: list[float], queue: list[float], verdict: Judgement, label: int, box: list[float]
) -> None:
    scorer = OneObject(at_matched)
    refined, after = refined_one(scorer, queue)
    asked = torch.tensor([[MATCHED, FAR, RIGHT, DOWN, ASIDE]])  # by objectness, after b*
    assert len(scorer.asked) == 1
    assert scorer.asked[0].shape == (1, 1 + PLACES, 4)
    torch.testing.assert_close(scorer.asked[0][:, :5], asked)
    assert refined.verdict.tolist() == [[verdict]]
    assert refined.labels.tolist() == [[label]]
    torch.testing.assert_close(refined.boxes, torch.tensor([[box]]).float())
    torch.testing.assert_close(refined.matched, torch.tensor([[MATCHED]]))
    torch.testing.assert_close(refined.loss, torch.tensor([[-math.log(0.2)]]))
    assert float(refined.threshold) == queue[3]
    assert refined.num_candidates.tolist() == [[3]]
    torch.testing.assert_close(after, torch.tensor([*queue[1:], -math.log(0.2)]))


@pytest.mark.parametrize(
    ("limit", "verdict", "label", "box"),
    [
        # s(b*) = 0.3, 0.2, 0.5. Without background 2/7 and 5/7: L = -log 2/7 = 1.25 <= 1.5 is kept;
        # with background L = 1.61 is noisy, and 0.5 is not above 0.5
        (1.5, Judgement.KEPT, 0, [12, 10, 32, 31]),
        # 1.25 > 1.2 is noisy, and 5/7 is confident
        (1.2, Judgement.RELABELLED, 1, [12, 13, 33, 33]),
    ],
    ids=["clean", "relabelled"],
)
def test_an_object_is_judged_over_the_foreground_as_computed_by_hand(
    limit: float, verdict: Judgement, label: int, box: list[float]
) -> None:
    scorer = OneObject([0.3, 0.2, 0.5])
    refined, after = refined_one(scorer, [1.0, 9, 9, limit], judged_classes="foreground")
    assert refined.verdict.tolist() == [[verdict]]
    assert refined.labels.tolist() == [[label]]
    torch.testing.assert_close(refined.boxes, torch.tensor([[box]]).float())
    torch.testing.assert_close(refined.loss, torch.tensor([[-math.log(2 / 7)]]))
    torch.testing.assert_close(refined.confidence, torch.tensor([[5 / 7]]))
    assert float(after[-1]) == pytest.approx(-math.log(2 / 7))


CANDIDATES = (FAR, RIGHT, DOWN, ASIDE)
SCORES = {
    tuple(MATCHED): [0.1, 0.2, 0.7],
    tuple(BOX): [0.5, 0.1, 0.4],
    **{tuple(box): scores for box, scores in zip(CANDIDATES, AT_PROPOSALS, strict=True)},
}
REGRESSIONS = {tuple(box): by for box, by in zip(CANDIDATES, REGRESSED[1:], strict=True)}


class ScoresByBox:
    """Score and regress the boxes above wherever they are asked for, and count all boxes."""

    def __init__(self) -> None:
        self.num_asked = 0

    def __call__(self, boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        asked = [tuple(box) for box in boxes[0].tolist()]
        self.num_asked += len(asked)
        scores = [SCORES.get(box, [0.0, 0.98, 0.98]) for box in asked]
        regressed = [REGRESSIONS.get(box, [[0.0, 0, 9, 9]] * 2) for box in asked]
        return torch.tensor([scores]), torch.tensor([regressed])


@pytest.mark.parametrize(
    ("judged_box", "loss", "verdict", "confidence", "box", "num_asked"),
    [
        # T = 1.5; b* says 0.2: L = 1.61 is noisy, and 0.7 for class 1 is confident
        ("matched", -math.log(0.2), Judgement.RELABELLED, 0.7, [12, 13, 33, 33], 101),
        # p* is RIGHT and says 0.7: L = 0.36 is clean
        ("proposal", -math.log(0.7), Judgement.KEPT, 0.7, [12, 10, 32, 31], 102),
        # b says 0.1: L = 2.3 is noisy, and 0.4 for class 1 is not confident: b* stays
        ("annotation", -math.log(0.1), Judgement.DISCARDED, 0.4, MATCHED, 102),
    ],
)
def test_an_object_is_judged_at_the_box_that_is_set(
    judged_box: Literal["matched", "proposal", "annotation"],
    loss: float,
    verdict: Judgement,
    confidence: float,
    box: list[float],
    num_asked: int,
) -> None:
    scorer = ScoresByBox()
    refined, after = refined_one(scorer, [1.0, 9, 9, 1.5], judged_box=judged_box)
    assert scorer.num_asked == num_asked
    assert refined.verdict.tolist() == [[verdict]]
    torch.testing.assert_close(refined.loss, torch.tensor([[loss]]))
    torch.testing.assert_close(refined.confidence, torch.tensor([[confidence]]))
    torch.testing.assert_close(refined.matched, torch.tensor([[MATCHED]]))
    torch.testing.assert_close(refined.boxes, torch.tensor([[box]]).float())
    assert float(after[-1]) == pytest.approx(loss)


@pytest.mark.parametrize(
    ("granularity", "thresholds", "verdicts"),
    # Losses 1.61 and 1.20, r = 0.5 of two: T is the smaller one. A batch is judged by 1 and 3;
    # one by one, the first loss has taken the place of the 1 when the second is judged.
    [
        ("batch", [1.0, 1.0], [Judgement.DISCARDED, Judgement.DISCARDED]),
        ("object", [1.0, -math.log(0.2)], [Judgement.DISCARDED, Judgement.KEPT]),
    ],
)
def test_the_order_of_judging_and_pushing_is_the_one_that_is_set(
    granularity: str, thresholds: list[float], verdicts: list[Judgement]
) -> None:
    def scorer(boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        assert boxes.shape == (1, 2, 4)
        return torch.tensor([[[0.8, 0.2], [0.7, 0.3]]]), boxes[:, :, None]

    refined, after = refine_as_published(
        Annotations(torch.tensor([[BOX, FAR]]), torch.zeros(1, 2).long(), torch.ones(1, 2).bool()),
        PaddedProposals(torch.zeros(1, 0, 4), torch.zeros(1, 0), torch.zeros(1, 0).bool()),
        torch.tensor([[100.0, 100.0]]),
        scorer,
        torch.tensor([1.0, 3]),
        Constants(
            acceptance=0.5,
            granularity="object" if granularity == "object" else "batch",
            steps=VARIANTS["cinj"],
        ),
    )
    assert refined.threshold.expand(1, 2)[0].tolist() == pytest.approx(thresholds)
    assert refined.verdict.tolist() == [verdicts]
    assert after.tolist() == pytest.approx([-math.log(0.2), -math.log(0.3)])


@pytest.mark.parametrize("name", ["cinj", "mend-paper"])
def test_one_by_one_reads_no_value_either(name: str) -> None:
    """Tensors without content refuse to be read: slow, but nothing waits for a device."""

    def scorer(boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        shape = boxes.shape[:2]
        return boxes.new_empty(*shape, 3), boxes.new_empty(*shape, 2, 4)

    def blank(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(*shape, dtype=dtype, device="meta")

    refined, after = refine_as_published(
        Annotations(blank(2, 3, 4), blank(2, 3, dtype=torch.int64), blank(2, 3, dtype=torch.bool)),
        PaddedProposals(blank(2, 5, 4), blank(2, 5), blank(2, 5, dtype=torch.bool)),
        blank(2, 2),
        scorer,
        blank(8),
        Constants(granularity="object", steps=VARIANTS[name]),
    )
    assert refined.threshold.shape == (2, 3)
    assert after.shape == (8,)
