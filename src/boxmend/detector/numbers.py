"""The numbers of a detector: plain values with torchvision's defaults, in one frozen place."""

from dataclasses import dataclass

Weights = tuple[float, float, float, float]


@dataclass(frozen=True)
class DetectorNumbers:
    """What shapes a detector and how it proposes, samples, learns and detects."""

    rpn_levels: tuple[str, ...] = ("0", "1", "2", "3", "pool")
    """Feature levels that carry anchors; the last ones that the backbone gives."""
    roi_levels: tuple[str, ...] = ("0", "1", "2", "3")
    """Feature levels that boxes are pooled from, finest first."""
    anchor_sizes: tuple[tuple[float, ...], ...] = ((32,), (64,), (128,), (256,), (512,))
    """Anchor sizes in pixels for each level of `rpn_levels`."""
    anchor_ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Height / width of the anchors, on every level."""

    pool_size: int = 7
    """Bins of RoIAlign a side."""
    pool_samples: int = 2
    """Sample points of a bin a side."""
    representation: int = 1024
    """Width of the two layers between pooling and prediction."""
    is_class_agnostic: bool = False
    """One regression for all classes instead of one for each."""
    box_heads: int = 1
    """Second stages side by side, which predict by their mean."""
    classifiers: int = 1
    """Classifiers on the features of one head, which predict by their mean."""
    has_spread: bool = False
    """Whether the head tells besides how unsure each side of a box is."""
    networks: int = 1
    """Whole networks; the second, the twin, is part of training alone."""
    delta_weights: Weights = (10.0, 10.0, 5.0, 5.0)
    """Factors of the box head's deltas, the inverses of their typical spread."""

    pre_nms_training: int = 2000
    """Anchors of each level that enter suppression while training."""
    post_nms_training: int = 2000
    """Proposals of an image while training."""
    pre_nms_testing: int = 1000
    """Anchors of each level that enter suppression while detecting."""
    post_nms_testing: int = 1000
    """Proposals of an image while detecting."""
    proposal_overlap: float = 0.7
    """IoU above which a proposal suppresses a lesser one of its level."""
    nms_rounds: int = 20
    """Rounds of the suppression; ten were needed at 2,000 boxes."""

    rpn_thresholds: tuple[float, float] = (0.3, 0.7)
    """IoU below which an anchor is negative, and from which it is positive."""
    rpn_low_quality: float = 0.0
    """IoU from which an annotation's best anchors are positive in any case."""
    rpn_samples: int = 256
    """Anchors of an image in the loss."""
    rpn_positive_share: float = 0.5
    """Most of them that may be positive."""
    roi_thresholds: tuple[float, float] = (0.5, 0.5)
    """IoU below which a proposal is background, and from which it is its annotation's."""
    roi_samples: int = 512
    """RoIs of an image in the loss."""
    roi_positive_share: float = 0.25
    """Most of them that may be positive."""
    ignore_overlap: float = 0.5
    """IoU with an ignored annotation from which nothing counts as background."""
    box_loss: str = "smooth_l1"
    """Regression loss of both stages: smooth_l1 (beta 1/9) or l1."""

    detection_candidates: int = 2000
    """Best scored boxes over all classes that enter the final suppression."""
