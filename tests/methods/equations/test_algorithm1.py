"""The composed fast version against the literal one, and the variants of the paper's tables."""

import math
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from boxmend.errors import UsageError
from boxmend.methods.equations import (
    VARIANTS,
    Annotations,
    Constants,
    EnabledSteps,
    Judgement,
    PaddedProposals,
    RefinedBatch,
    empty_queue,
    refine_as_published,
)
from tests.methods.equations.algorithm1 import Box, Heads, Image, Options, Outcome, run

NUM_LABELS = 3
HEIGHT, WIDTH = 120.0, 160.0
NAN, INF = math.nan, math.inf
SWITCHES = {
    # methods by name:  match, average, judge, relabel
    "baseline": (False, False, False, False),
    "cm": (True, False, False, False),
    "br": (True, True, False, False),
    "cinj": (False, False, True, False),
    "pseudo": (False, False, False, True),
    "lr": (False, False, True, True),
    "mend-paper": (True, True, True, True),
}


def second_stage_of(seed: int) -> Heads:
    """A smooth made-up detector: probabilities and regressions from the coordinates of a box."""
    source = random.Random(seed)
    frequencies = [[source.uniform(0.02, 0.2) for _ in range(4)] for _ in range(1 + NUM_LABELS)]
    shifts = [[source.uniform(-6, 6) for _ in range(4)] for _ in range(NUM_LABELS)]

    def heads(box: Box) -> tuple[list[float], list[Box]]:
        waves = [
            2.5 * math.sin(sum(f * x for f, x in zip(row, box, strict=True))) for row in frequencies
        ]
        total = sum(math.exp(wave) for wave in waves)
        regressed = [
            [x + s + 2 * math.sin(0.1 * x) for x, s in zip(box, row, strict=True)] for row in shifts
        ]
        return [math.exp(wave) / total for wave in waves], regressed

    return heads


def drawn_box(source: random.Random) -> Box:
    left, top = source.uniform(0, WIDTH - 45), source.uniform(0, HEIGHT - 45)
    return [left, top, left + source.uniform(8, 44), top + source.uniform(8, 44)]


def drawn_image(source: random.Random, num_objects: int) -> Image:
    boxes = [drawn_box(source) for _ in range(num_objects)]
    proposals = [drawn_box(source) for _ in range(source.randint(0, 6))]
    for number, box in enumerate(boxes):  # by turns no, one, two, ... proposals close by
        for _ in range(number % 5 if number % 5 < 4 else 14):
            proposals.append([edge + source.uniform(-3, 3) for edge in box])
    source.shuffle(proposals)
    return Image(
        boxes,
        [source.randrange(NUM_LABELS) for _ in boxes],
        proposals,
        [source.random() for _ in proposals],
        HEIGHT,
        WIDTH,
        second_stage_of(source.randrange(1000)),
    )


class ListScorer:
    """The made-up detectors of all images behind one call on a padded batch."""

    def __init__(self, images: list[Image]):
        self.images = images

    def __call__(self, boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        scored = [
            [image.heads(box) for box in row]
            for image, row in zip(self.images, boxes.double().tolist(), strict=True)
        ]
        probabilities = [[pair[0] for pair in row] for row in scored]
        regressed = [[pair[1] for pair in row] for row in scored]
        count = boxes.shape[1]
        return (
            torch.tensor(probabilities).reshape(len(self.images), count, 1 + NUM_LABELS),
            torch.tensor(regressed).reshape(len(self.images), count, NUM_LABELS, 4),
        )


def pad(images: list[Image], more: int = 2) -> tuple[Annotations, PaddedProposals, Tensor]:
    """The images as one batch, with padding that holds NaN, infinity and perfect matches."""
    num_boxes = max(len(image.boxes) for image in images) + more
    num_proposals = max(len(image.proposals) for image in images) + more
    lures = [[NAN] * 4, [INF] * 4, [20.0, 20, 40, 40]]
    boxes = [(i.boxes + lures * num_boxes)[:num_boxes] for i in images]
    labels = [(i.labels + [-7, 10**6] * num_boxes)[:num_boxes] for i in images]
    close = [(i.proposals + (i.boxes + lures) * num_proposals)[:num_proposals] for i in images]
    scores = [(i.objectness + [NAN, INF, 9.0] * num_proposals)[:num_proposals] for i in images]
    is_box = [[n < len(i.boxes) for n in range(num_boxes)] for i in images]
    is_proposal = [[n < len(i.proposals) for n in range(num_proposals)] for i in images]
    shape = (len(images), num_proposals)
    return (
        Annotations(torch.tensor(boxes), torch.tensor(labels), torch.tensor(is_box)),
        PaddedProposals(
            torch.tensor(close).reshape(*shape, 4),
            torch.tensor(scores).reshape(shape),
            torch.tensor(is_proposal, dtype=torch.bool).reshape(shape),
        ),
        torch.tensor([[HEIGHT, WIDTH]] * len(images)),
    )


def assert_same(
    refined: RefinedBatch, outcomes: list[list[Outcome]], annotations: Annotations
) -> None:
    num_boxes = annotations.is_box.shape[1]
    limits = refined.threshold.expand(annotations.is_box.shape)
    for row, expected in enumerate(outcomes):
        for column in range(num_boxes):
            if column >= len(expected):
                assert refined.verdict[row, column] == Judgement.DISCARDED
                assert refined.boxes[row, column].tolist() == [0, 0, 1, 1]
                assert refined.labels[row, column] == 0
                assert refined.loss[row, column] == 0
                continue
            one, place = expected[column], (row, column)
            assert Judgement(int(refined.verdict[place])).name == one.verdict.upper()
            assert refined.labels[place] == one.label
            assert refined.num_candidates[place] == one.num_candidates
            assert refined.boxes[place].tolist() == pytest.approx(one.box, abs=2e-3)
            assert refined.matched[place].tolist() == pytest.approx(one.matched, abs=1e-3)
            assert float(refined.loss[place]) == pytest.approx(one.loss, abs=1e-4)
            assert float(limits[place]) == pytest.approx(one.threshold, abs=1e-4)
            assert float(refined.confidence[place]) == pytest.approx(one.confidence, abs=1e-5)


@pytest.mark.parametrize("by_object", [False, True], ids=["batch", "object"])
@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_the_fast_version_equals_the_literal_one(name: str, by_object: bool) -> None:
    source = random.Random(f"{name} {by_object}")
    match, average, judge, relabel = SWITCHES[name]
    seen = {"kept": 0, "relabelled": 0, "discarded": 0}
    counts = set[int]()
    for trial in range(4):
        fallback = ("raw", "self")[trial % 2]
        unreliable = "keep" if trial == 3 else "discard"
        options = Options(
            *(0.1, 0.85, 20, 5, 0.3, 0.6, 0.5, fallback, unreliable, "all", "matched"),
            *(match, average, judge, relabel),
        )
        constants = Constants(
            fit_threshold=0.85,
            num_proposals=20,
            num_candidates=5,
            alpha=0.3,
            acceptance=0.6,
            fallback="self" if fallback == "self" else "raw",
            unreliable="keep" if unreliable == "keep" else "discard",
            granularity="object" if by_object else "batch",
            steps=VARIANTS[name],
        )
        queue, literal_queue = empty_queue(10), [INF] * 10
        for _ in range(4):  # the queue goes from batch to batch
            images = [drawn_image(source, num) for num in (7, 0, source.randint(1, 5))]
            annotations, proposals, sizes = pad(images)
            scorer = ListScorer(images)
            refined, queue = refine_as_published(
                annotations, proposals, sizes, scorer, queue, constants
            )
            outcomes, literal_queue = run(images, literal_queue, options, by_object)
            assert_same(refined, outcomes, annotations)
            assert queue.tolist() == pytest.approx(literal_queue, abs=1e-4)
            for one in sum(outcomes, start=list[Outcome]()):
                seen[one.verdict] += 1
                counts.add(one.num_candidates)
    assert seen["kept"] > 0
    assert (seen["relabelled"] > 0) == relabel
    assert (seen["discarded"] > 0) == (judge or relabel)
    if match or average:
        assert {0, 1, 2, 5} <= counts


@pytest.mark.parametrize("name", ["cinj", "lr", "mend-paper", "match and judge"])
@pytest.mark.parametrize("classes", ["all", "foreground"])
@pytest.mark.parametrize("judged_box", ["matched", "proposal", "annotation"])
def test_every_reading_of_the_judgement_equals_the_literal_one(
    name: str, classes: str, judged_box: str
) -> None:
    source = random.Random(f"{name} {classes} {judged_box}")
    match, average, judge, relabel = SWITCHES.get(name, (True, False, True, True))
    options = Options(
        *(0.1, 0.85, 20, 5, 0.3, 0.6, 0.5, "raw", "discard", classes, judged_box),
        *(match, average, judge, relabel),
    )
    constants = Constants(
        fit_threshold=0.85,
        num_proposals=20,
        num_candidates=5,
        alpha=0.3,
        judged_classes="foreground" if classes == "foreground" else "all",
        judged_box=judged_box,  # type: ignore[arg-type]  # one of the three
        steps=EnabledSteps(match, average, judge, relabel),
    )
    queue, literal_queue = empty_queue(10), [INF] * 10
    for _ in range(3):
        images = [drawn_image(source, num) for num in (7, 0, source.randint(1, 5))]
        annotations, proposals, sizes = pad(images)
        refined, queue = refine_as_published(
            annotations, proposals, sizes, ListScorer(images), queue, constants
        )
        outcomes, literal_queue = run(images, literal_queue, options, by_object=False)
        assert_same(refined, outcomes, annotations)
        assert queue.tolist() == pytest.approx(literal_queue, abs=1e-4)


def test_the_variants_enable_the_steps_of_the_paper() -> None:
    assert {name: EnabledSteps(*flags) for name, flags in SWITCHES.items()} == VARIANTS


def batch_of(*sizes: int, seed: int = 5) -> list[Image]:
    source = random.Random(seed)
    return [drawn_image(source, size) for size in sizes]


def refine(images: list[Image], constants: Constants, more: int = 0) -> RefinedBatch:
    return refined_with_queue(images, constants, more)[0]


def refined_with_queue(
    images: list[Image], constants: Constants, more: int
) -> tuple[RefinedBatch, Tensor]:
    annotations, proposals, sizes = pad(images, more)
    queue = torch.linspace(0, 3, 8)
    return refine_as_published(annotations, proposals, sizes, ListScorer(images), queue, constants)


def test_a_batch_is_refined_like_its_images_one_by_one() -> None:
    images = batch_of(6, 3, 1)
    constants = Constants(fit_threshold=0.8)
    together = refine(images, constants, more=3)
    for row, image in enumerate(images):
        alone, num = refine([image], constants), len(image.boxes)
        torch.testing.assert_close(together.boxes[row, :num], alone.boxes[0])
        assert together.labels[row, :num].tolist() == alone.labels[0].tolist()
        assert together.verdict[row, :num].tolist() == alone.verdict[0].tolist()


def test_the_order_of_proposals_does_not_matter() -> None:
    images = batch_of(6, 3)
    turned = [
        replace(image, proposals=image.proposals[::-1], objectness=image.objectness[::-1])
        for image in images
    ]
    first, second = refine(images, Constants()), refine(turned, Constants())
    torch.testing.assert_close(first.boxes, second.boxes)
    assert first.verdict.tolist() == second.verdict.tolist()


def test_no_argument_of_the_refinement_is_changed() -> None:
    images = batch_of(4, 2)
    annotations, proposals, sizes = pad(images)
    queue = torch.linspace(0, 3, 8)
    arguments = (*annotations, *proposals, sizes, queue)
    before = [tensor.clone() for tensor in arguments]
    refine_as_published(annotations, proposals, sizes, ListScorer(images), queue, Constants())
    for tensor, copy in zip(arguments, before, strict=True):
        torch.testing.assert_close(tensor, copy, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_a_batch_without_any_object_or_proposal_passes(name: str) -> None:
    images = [Image([], [], [], [], HEIGHT, WIDTH, second_stage_of(0))] * 2
    for more in (1, 3):
        refined, queue = refined_with_queue(images, Constants(steps=VARIANTS[name]), more)
        assert refined.verdict.tolist() == [[Judgement.DISCARDED] * more] * 2
        assert torch.isfinite(refined.boxes).all()
        torch.testing.assert_close(queue, torch.linspace(0, 3, 8))


def test_one_proposal_may_serve_several_objects() -> None:
    twins: list[Box] = [[20.0, 20, 60, 60], [21.0, 20, 61, 60]]
    image = Image(twins, [0, 1], [[20.0, 21, 60, 61]], [0.9], HEIGHT, WIDTH, second_stage_of(1))
    refined = refine([image], Constants(steps=VARIANTS["cm"], alpha=0.5))
    assert refined.matched[0].tolist() == [[20, 20.5, 60, 60.5], [20.5, 20.5, 60.5, 60.5]]


def test_the_scorer_is_called_once_and_for_b_alone_without_averaging() -> None:
    shapes = list[tuple[int, ...]]()
    images = batch_of(3, 2)

    class Counting(ListScorer):
        def __call__(self, boxes: Tensor, /) -> tuple[Tensor, Tensor]:
            shapes.append(tuple(boxes.shape))
            assert torch.isfinite(boxes).all()  # nothing of the padding reaches the detector
            return super().__call__(boxes)

    annotations, proposals, sizes = pad(images)
    for name in ("mend-paper", "lr"):
        constants = Constants(steps=VARIANTS[name])
        refine_as_published(
            annotations, proposals, sizes, Counting(images), empty_queue(4), constants
        )
    assert shapes == [(2, 5 + 100, 4), (2, 5, 4)]  # 5 places for b*, 100 for proposals


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_no_shape_and_no_step_depends_on_the_values(name: str) -> None:
    """Tensors without content refuse to be read: nothing here waits for a device."""

    def scorer(boxes: Tensor, /) -> tuple[Tensor, Tensor]:
        shape = boxes.shape[:2]
        return boxes.new_empty(*shape, 1 + NUM_LABELS), boxes.new_empty(*shape, NUM_LABELS, 4)

    annotations, proposals, sizes = pad(batch_of(4, 2))
    refined, queue = refine_as_published(
        Annotations(*(tensor.to("meta") for tensor in annotations)),
        PaddedProposals(*(tensor.to("meta") for tensor in proposals)),
        sizes.to("meta"),
        scorer,
        empty_queue(8, "meta"),
        Constants(steps=VARIANTS[name]),
    )
    assert refined.boxes.shape == annotations.boxes.shape
    assert queue.shape == (8,)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"alpha": 1.5}, "alpha is 1.5; expected a share from 0 to 1"),
        ({"acceptance": NAN}, "acceptance is nan"),
        ({"confidence": -0.1}, "confidence is -0.1"),
        ({"gamma": -1.0}, "gamma is -1.0; expected a weight from 0 on"),
        ({"num_candidates": 0}, "num_candidates is 0; expected 1 or more"),
        ({"num_proposals": 0}, "num_proposals is 0"),
        ({"fallback": "own"}, "fallback is 'own'; expected 'raw' or 'self'"),
        ({"unreliable": "drop"}, "unreliable is 'drop'; expected 'discard' or 'keep'"),
        ({"granularity": "image"}, "granularity is 'image'; expected 'batch' or 'object'"),
        ({"judged_classes": "none"}, "judged_classes is 'none'; expected 'all' or 'foreground'"),
        (
            {"judged_box": "b"},
            "judged_box is 'b'; expected 'matched' or 'proposal' or 'annotation'",
        ),
    ],
)
def test_constants_out_of_range_are_refused(constants: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Constants(**constants)  # type: ignore[arg-type]  # wrong on purpose
