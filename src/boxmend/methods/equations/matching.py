"""Center matching: the proposals that fit an annotated box, and the matched box b* (Eq. 15 to 19).

Shapes: B images, A annotations, P proposals, K candidates. Boxes are xyxy in pixels of one frame.
The extent of a box is W + H.
"""

import torch
from torch import Tensor
from torch.nn import functional

from boxmend.detector.boxes import inert_boxes, side_lengths
from boxmend.methods.equations.ranking import best


def alpha_from_rate(box_noise: float) -> float:
    """Return alpha of Eq. 19: the rate of box noise, limited to 0.2 .. 0.4.

    The paper uses 0.2 at 20 % and 0.4 at 40 %.
    """
    return min(max(box_noise, 0.2), 0.4)


def top_proposals(
    proposals: Tensor, objectness: Tensor, is_proposal: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Select P_h, the `count` proposals of highest objectness in each image, best first (Eq. 18).

    Takes proposals [B, P, 4], objectness [B, P] and is_proposal [B, P]. Returns the same three as
    [B, count, 4], [B, count] and [B, count], with inert padding where an image has fewer.
    """
    places, is_top = best(objectness, is_proposal, count)  # [B, count]
    short = max(0, count - proposals.shape[1])
    boxes = functional.pad(proposals, (0, 0, 0, short))  # never empty, so that index 0 is valid
    scores = functional.pad(objectness, (0, short))
    top = boxes.gather(1, places[..., None].expand(-1, -1, 4))
    top_scores = torch.where(is_top, scores.gather(1, places), 0)
    return inert_boxes(top, is_top), top_scores, is_top


def center_fitness(boxes: Tensor, proposals: Tensor, gamma: float = 0.1) -> Tensor:
    """Compute fit(b, p) = 1 - (D + gamma * C) for every annotated box and proposal (Eq. 15).

    Takes boxes [B, A, 4] and proposals [B, P, 4]. Returns [B, A, P]. Padding may give NaN or
    infinity and must be masked.
    """
    distance = center_distance(boxes, proposals)  # D
    mismatch = extent_mismatch(boxes, proposals)  # C
    fitness: Tensor = 1 - (distance + gamma * mismatch)
    return fitness


def center_distance(boxes: Tensor, proposals: Tensor) -> Tensor:
    """Compute the distance of the centers in extents of the proposal (Eq. 16).

    D = sqrt((x_b - x_p)^2 + (y_b - y_p)^2) / (W_p + H_p). Takes [B, A, 4] and [B, P, 4].
    Returns [B, A, P].
    """
    # Not cdist: its matrix product has errors of about 0.2 pixels at coordinates of this size.
    offset = _centers(boxes)[:, :, None] - _centers(proposals)[:, None]  # [B, A, P, 2]
    distance: Tensor = torch.linalg.vector_norm(offset, dim=-1) / _extents(proposals)[:, None]
    return distance


def extent_mismatch(boxes: Tensor, proposals: Tensor) -> Tensor:
    """Compute the difference of the extents, C = |(W_b + H_b) / (W_p + H_p) - 1| (Eq. 17).

    Takes [B, A, 4] and [B, P, 4]. Returns [B, A, P].
    """
    ratio = _extents(boxes)[:, :, None] / _extents(proposals)[:, None]
    return (ratio - 1).abs()


def candidate_mask(
    fitness: Tensor, is_box: Tensor, is_proposal: Tensor, threshold: float
) -> Tensor:
    """Mark B_candidate, the proposals with fit(b, p) > threshold, of any number (Eq. 18).

    Takes fitness [B, A, P], is_box [B, A] and is_proposal [B, P]. Returns [B, A, P].
    """
    is_real = is_box[:, :, None] & is_proposal[:, None]
    return is_real & (fitness > threshold)  # false for NaN from padding


def top_candidates(
    is_candidate: Tensor, objectness: Tensor, count: int = 10
) -> tuple[Tensor, Tensor]:
    """Keep the `count` members of each B_candidate with the highest objectness (after Eq. 18).

    Takes is_candidate [B, A, P] and objectness [B, P]. Returns indices [B, A, K] into the P
    proposals, best first, and the mask [B, A, K] of those that exist. The first one is p*.
    """
    return best(objectness[:, None].expand_as(is_candidate), is_candidate, count)


def candidate_boxes(proposals: Tensor, places: Tensor, is_candidate: Tensor) -> Tensor:
    """Return the boxes of the candidates, [B, A, K, 4], inert where there is none.

    Takes proposals [B, P, 4], their indices `places` [B, A, K] and is_candidate [B, A, K].
    """
    num_images, num_annotations, count = places.shape
    flat = places.reshape(num_images, num_annotations * count, 1).expand(-1, -1, 4)
    boxes = proposals.gather(1, flat).reshape(num_images, num_annotations, count, 4)
    return inert_boxes(boxes, is_candidate)


def matched_boxes(boxes: Tensor, candidates: Tensor, is_candidate: Tensor, alpha: float) -> Tensor:
    """Blend each box with p*: b* = alpha * p* + (1 - alpha) * b (Eq. 19).

    p* is the first candidate, that of highest objectness; a box without candidates is unchanged.
    Takes boxes [B, A, 4], candidates [B, A, K, 4] and is_candidate [B, A, K]. Returns [B, A, 4].
    """
    blend = alpha * candidates[:, :, 0] + (1 - alpha) * boxes
    return torch.where(is_candidate[:, :, :1], blend, boxes)


def _centers(boxes: Tensor) -> Tensor:
    return (boxes[..., :2] + boxes[..., 2:]) / 2


def _extents(boxes: Tensor) -> Tensor:
    return side_lengths(boxes).sum(-1)  # W + H
