"""Votes of detections for the boxes of annotations, and the expected edges given both.

The equations are those of `boxmend.methods.equations.voting` and `box_noise`, in NumPy: a detection
votes by its score under the posterior and by its overlap with the annotated box, and every edge
moves to its posterior mean under the estimated box noise.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from boxmend.auditing.evidence import EVIDENCE, Detected, Objects
from boxmend.auditing.pairs import Pairs, find_largest, find_overlaps
from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Mask, Rows, Singles


@dataclass(frozen=True)
class VoteConstants:
    """Which detections vote, and the model of their errors; lengths are in sides of a box."""

    min_iou: float = 0.3  # with the annotated box; below, a detection is of another object
    cluster_min_iou: float = 0.6  # with the strongest vote, of votes that are averaged
    narrow_share: float = 0.65  # of the error of a vote; the rest is wide
    stray_density: float = 1e-6  # of a vote for another object, at any distance
    min_noise_sides: float = 1e-3  # instead of N = 0, by which the densities are divided
    at_border_pixels: float = 1.0  # an edge that near to the border counts as at the border
    border_hold_share: float = 0.5  # of the way that an edge at the border does not move
    min_border_share: float = 0.6  # of these edges that truly end there; with fewer none is held


VOTES = VoteConstants()


@dataclass(frozen=True, eq=False)
class BoxVotes:
    """Where detections place the annotated objects, row by row."""

    boxes: Floats  # [k, 4]; NaN without a vote
    scores: Floats  # [k] of the strongest vote, under the posterior; 0 without one
    counts: Rows  # [k] detections that were averaged


def pair_votes(objects: Objects, detected: Detected) -> tuple[Pairs, Floats]:
    """Return the detections that may vote for each annotation, and the share of each vote.

    The share is small if the detection fits another annotation better.
    """
    pairs = find_overlaps(
        objects.image_rows, objects.boxes, detected.image_rows, detected.boxes, VOTES.min_iou
    )
    best, _ = find_largest(pairs.second, pairs.iou, len(detected))
    share = (pairs.iou / np.maximum(best[pairs.second], pairs.iou)) ** EVIDENCE.sharing_power
    return pairs, share


def expected_scores(posteriors: Singles, detected: Detected, pairs: Pairs) -> Floats:
    """Return the score of the detection of each pair under the posterior: sum_c q(c) s(c)."""
    if detected.class_scores is None:
        own = posteriors[pairs.first, detected.labels[pairs.second]]
        scores: Floats = own * detected.scores[pairs.second]
        return scores
    expected = np.empty(len(pairs))
    step = max(4_000_000 // max(posteriors.shape[1], 1), 1)
    for start in range(0, len(pairs), step):
        part = slice(start, start + step)
        vectors = detected.class_scores[pairs.second[part]]
        expected[part] = (posteriors[pairs.first[part]] * vectors).sum(axis=1)
    return expected


def vote_boxes(number: int, pairs: Pairs, scores: Floats, share: Floats, boxes: Floats) -> BoxVotes:
    """Return the vote for each of `number` annotations.

    The weight of a detection is its score [p] times its share [p] and the root of its IoU with the
    annotated box. The vote is the weighted mean of the strongest detection and of those that
    overlap it; `boxes` are those of the detections.
    """
    weights = scores * share * np.sqrt(pairs.iou)
    strongest, places = find_largest(pairs.first, weights, number)
    has_vote = (places >= 0) & (strongest > 0)
    leaders = np.where(has_vote, pairs.second[np.maximum(places, 0)] if len(pairs) else 0, 0)
    if not has_vote.any():
        return BoxVotes(np.full((number, 4), np.nan), np.zeros(number), np.zeros(number, np.int64))
    near = compute_iou(boxes[pairs.second], boxes[leaders[pairs.first]]) > VOTES.cluster_min_iou
    weights = np.where(near & has_vote[pairs.first], weights, 0.0)
    total = np.bincount(pairs.first, weights, number)
    means = np.full((number, 4), np.nan)
    for side in range(4):
        sums = np.bincount(pairs.first, weights * boxes[pairs.second, side], number)
        np.divide(sums, total, out=means[:, side], where=has_vote)
    leading = np.where(has_vote, scores[np.maximum(places, 0)], 0.0)
    return BoxVotes(means, leading, np.bincount(pairs.first[weights > 0], minlength=number))


def expected_boxes(boxes: Floats, voted: Floats, noise: float, errors: Floats) -> Floats:
    """Move each annotated edge to its posterior mean, given the voted edge; [k, 4].

    The annotated edge is off by up to `noise` sides, uniformly; the vote is off by a normally
    distributed error, with a part that is wider, of the standard deviation `errors` [k]. If both
    nearly agree, the edge moves part of the way. If they differ by more than the noise explains,
    the vote is wrong too: the edge moves by the noise or, farther out, not at all.
    """
    sides = np.maximum(np.tile(voted[:, 2:] - voted[:, :2], 2), 1.0)
    difference = (voted - boxes) / sides
    moved: Floats = boxes + sides * _expected_shift(difference, noise, errors[:, None])
    return moved


def _expected_shift(difference: Floats, noise: float, errors: Floats) -> Floats:
    """Return E[u | x] with x the difference and u within -N .. N."""
    width, narrow_share = max(noise, VOTES.min_noise_sides), VOTES.narrow_share
    narrow = errors / np.sqrt(narrow_share + (1 - narrow_share) * SHARED.wide_factor**2)
    size = np.abs(difference)  # the tails of the normal distribution are exact on one side only
    mass = np.full(size.shape, 2 * width * VOTES.stray_density)
    moment = np.zeros(size.shape)
    for share, scale in ((narrow_share, narrow), (1 - narrow_share, SHARED.wide_factor * narrow)):
        near, far = (size - width) / scale, (size + width) / scale
        part = ndtr(-near) - ndtr(-far)
        mass += share * part
        moment += share * (size * part - scale * (_normal_pdf(near) - _normal_pdf(far)))
    shift: Floats = np.sign(difference) * np.maximum(moment / mass, 0.0)
    return shift


def _normal_pdf(z: Floats) -> Floats:
    density: Floats = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return density


def hold_at_border(moved: Floats, annotated: Floats, sizes: Floats, share: float) -> Floats:
    """Move edges that are annotated at the image's border back towards it, by `share` of the way.

    Such an edge is there because the object ends at the border, or because noise moved it outside
    and the border clipped it. The vote hardly separates them, so the edge is put in between.
    """
    at_border = _distance_to_border(annotated, sizes) <= VOTES.at_border_pixels
    held: Floats = np.where(at_border, moved + (annotated - moved) * share, moved)
    return held


def choose_hold_share(annotated: Floats, sizes: Floats, noise: float) -> float:
    """Return the share for `hold_at_border`: 0.5 if many edges truly end at the border, else 0.

    Noise moves half of the edges that end at the border outwards, where the border clips them, and
    the other half to within N of it. Of edges spread evenly inside, it clips N / 4 and leaves 3 N /
    4 within N. So with c edges at the border and n within N of it, the share of the c that end
    there is (3 - n / c) / 2.
    """
    sides = np.maximum(np.tile(annotated[:, 2:] - annotated[:, :2], 2), 1.0)
    distances = _distance_to_border(annotated, sizes)
    at_border: Mask = distances <= VOTES.at_border_pixels
    number = int(at_border.sum())
    if not number:
        return 0.0
    width = round(noise / SHARED.bin_width_sides) * SHARED.bin_width_sides
    within = int((~at_border & (np.abs(distances / sides) < width)).sum())
    share = min(max((3 - within / number) / 2, 0.0), 1.0)
    return VOTES.border_hold_share if share > VOTES.min_border_share else 0.0


def _distance_to_border(boxes: Floats, sizes: Floats) -> Floats:
    """Return how many pixels each edge [k, 4] lies inside the image; infinite if unknown."""
    limits = np.where(sizes > 0, sizes, np.inf)
    distances: Floats = np.concatenate([boxes[:, :2], limits - boxes[:, 2:]], axis=1)
    return distances
