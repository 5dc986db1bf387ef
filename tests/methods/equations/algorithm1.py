"""Algorithm 1 in plain Python floats, one object after the other, in the order of the paper.

Written apart from the package, as its oracle: slow, literal, without tensors. One image is a dict
of lists; `heads` scores a single box.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

Box = list[float]
Heads = Callable[[Box], tuple[list[float], list[Box]]]
"""A box -> probabilities of background and C classes, and C regressed boxes."""


@dataclass
class Image:
    boxes: list[Box]
    labels: list[int]
    proposals: list[Box]
    objectness: list[float]
    height: float
    width: float
    heads: Heads


@dataclass
class Options:
    gamma: float = 0.1
    fit_threshold: float = 0.9
    num_proposals: int = 100
    num_candidates: int = 10
    alpha: float = 0.4
    acceptance: float = 0.6
    confidence: float = 0.5
    fallback: str = "raw"
    unreliable: str = "discard"
    judged_classes: str = "all"
    judged_box: str = "matched"
    match: bool = True
    average: bool = True
    judge: bool = True
    relabel: bool = True


@dataclass
class Outcome:
    box: Box
    label: int
    verdict: str
    loss: float
    threshold: float
    confidence: float
    num_candidates: int
    matched: Box


def run(
    images: list[Image], queue: list[float], options: Options, by_object: bool
) -> tuple[list[list[Outcome]], list[float]]:
    """Refine the objects of a batch. Returns the outcomes by image, and the queue afterwards."""
    queue = list(queue)
    before_batch = list(queue)
    pushed: list[float] = []
    outcomes: list[list[Outcome]] = []
    for image in images:
        outcomes.append([])
        for box, label in zip(image.boxes, image.labels, strict=True):
            limit = cut_off(queue if by_object else before_batch, options)
            outcome = refine_one(image, box, label, limit, options)
            outcomes[-1].append(outcome)
            if by_object and options.judge:
                queue.append(outcome.loss)
                queue.pop(0)
            pushed.append(outcome.loss)
    if not by_object and options.judge:
        for loss in pushed:
            queue.append(loss)
            queue.pop(0)
    return outcomes, queue


def cut_off(queue: list[float], options: Options) -> float:
    if not options.judge:
        return -math.inf if options.relabel else math.inf
    ordered = sorted(queue)
    number = math.floor(options.acceptance * len(ordered) + 1e-9)  # counted from 1
    number = max(1, min(len(ordered), number))
    return ordered[number - 1]


def refine_one(image: Image, box: Box, label: int, limit: float, options: Options) -> Outcome:
    candidates: list[Box] = []
    if options.match or options.average:
        candidates = center_matching(image, box, options)
    matched = box
    if options.match and candidates:
        alpha = options.alpha
        matched = [alpha * p + (1 - alpha) * b for p, b in zip(candidates[0], box, strict=True)]
    judged = {
        "matched": matched,
        "proposal": candidates[0] if options.match and candidates else box,
        "annotation": box,
    }[options.judged_box]
    scores, _ = image.heads(judged)
    if options.judged_classes == "foreground":
        scores = [0.0, *(score / sum(scores[1:]) for score in scores[1:])]
    loss = -math.log(scores[label + 1])
    guess = max(range(len(scores) - 1), key=lambda one: scores[one + 1])
    confidence = scores[guess + 1]

    if loss <= limit:
        verdict, final = "kept", label
    elif options.relabel and confidence > options.confidence:
        verdict, final = ("relabelled" if guess != label else "kept"), guess
    elif options.relabel and options.unreliable == "keep":
        verdict, final = "kept", label
    else:
        verdict, final = "discarded", label

    mended = matched
    if options.average and verdict != "discarded":
        mended = box_average(image, matched, candidates, final, options)
    return Outcome(mended, final, verdict, loss, limit, confidence, len(candidates), matched)


def center_matching(image: Image, box: Box, options: Options) -> list[Box]:
    """The candidates, the one of highest objectness first."""
    order = sorted(range(len(image.proposals)), key=lambda one: -image.objectness[one])
    fitting = []
    for one in order[: options.num_proposals]:
        proposal = image.proposals[one]
        extent = proposal[2] - proposal[0] + proposal[3] - proposal[1]
        own_extent = box[2] - box[0] + box[3] - box[1]
        right = (box[0] + box[2]) / 2 - (proposal[0] + proposal[2]) / 2
        down = (box[1] + box[3]) / 2 - (proposal[1] + proposal[3]) / 2
        distance = math.sqrt(right**2 + down**2) / extent
        mismatch = abs(own_extent / extent - 1)
        if 1 - (distance + options.gamma * mismatch) > options.fit_threshold:
            fitting.append(proposal)
    return fitting[: options.num_candidates]


def box_average(
    image: Image, matched: Box, candidates: list[Box], label: int, options: Options
) -> Box:
    scored = [
        (image.heads(candidate)[0][label + 1], image.heads(candidate)[1][label])
        for candidate in candidates
    ]
    scored.sort(key=lambda pair: -pair[0])
    members = [matched] + [regressed for _, regressed in scored[:2]]
    if not candidates and options.fallback == "self":
        members.append(image.heads(matched)[1][label])
    left, top, right, bottom = (sum(edge) / len(members) for edge in zip(*members, strict=True))
    left = max(0.0, min(left, image.width - 1))
    top = max(0.0, min(top, image.height - 1))
    right = max(min(right, image.width), left + 1)
    bottom = max(min(bottom, image.height), top + 1)
    return [left, top, right, bottom]
