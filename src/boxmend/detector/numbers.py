"""The hyperparameters of a detector, with torchvision's defaults."""

from dataclasses import dataclass

Weights = tuple[float, float, float, float]


@dataclass(frozen=True)
class DetectorNumbers:
    """The shape of a detector, and its numbers for proposals, sampling, losses and detection."""

    rpn_levels: tuple[str, ...] = ("0", "1", "2", "3", "pool")
    """Feature levels with anchors: the last levels of the backbone."""
    roi_levels: tuple[str, ...] = ("0", "1", "2", "3")
    """Feature levels that boxes are pooled from, finest first."""
    anchor_sizes: tuple[tuple[float, ...], ...] = ((32,), (64,), (128,), (256,), (512,))
    """Anchor sizes in pixels for each level of `rpn_levels`."""
    anchor_ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Height / width of the anchors, on every level."""

    pool_size: int = 7
    """Bins of RoIAlign per side."""
    pool_samples: int = 2
    """Sample points of a bin per side."""
    representation: int = 1024
    """Width of the two layers between pooling and prediction."""
    is_class_agnostic: bool = False
    """One regression for all classes instead of one per class."""
    box_heads: int = 1
    """Second stages, which predict by their mean."""
    classifiers: int = 1
    """Classifiers on the features of one head, which predict by their mean."""
    has_spread: bool = False
    """Whether the head also predicts the uncertainty of each side of a box."""
    networks: int = 1
    """Complete networks; the second one, the twin, is only used in training."""
    delta_weights: Weights = (10.0, 10.0, 5.0, 5.0)
    """Factors of the box head's deltas: the inverses of their typical spread."""

    pre_nms_training: int = 2000
    """Anchors of each level that enter suppression while training."""
    post_nms_training: int = 2000
    """Proposals of an image while training."""
    pre_nms_testing: int = 1000
    """Anchors of each level that enter suppression while detecting."""
    post_nms_testing: int = 1000
    """Proposals of an image while detecting."""
    proposal_overlap: float = 0.7
    """IoU above which a proposal suppresses one of lower objectness on its level."""
    nms_rounds: int = 20
    """Rounds of the suppression; 2,000 boxes need about ten."""

    rpn_thresholds: tuple[float, float] = (0.3, 0.7)
    """IoU below which an anchor is negative, and from which it is positive."""
    rpn_low_quality: float = 0.0
    """IoU from which the best anchors of an annotation are positive in any case."""
    rpn_samples: int = 256
    """Anchors per image in the loss."""
    rpn_positive_share: float = 0.5
    """Highest share of positive anchors among them."""
    roi_thresholds: tuple[float, float] = (0.5, 0.5)
    """IoU below which a proposal is background, and from which it is positive."""
    roi_samples: int = 512
    """RoIs per image in the loss."""
    roi_positive_share: float = 0.25
    """Highest share of positive RoIs among them."""
    ignore_overlap: float = 0.5
    """IoU with an ignored annotation from which a box is not background."""
    box_loss: str = "smooth_l1"
    """Regression loss of both stages: smooth_l1 (beta 1/9) or l1."""

    detection_candidates: int = 2000
    """Boxes of highest score, over all classes, that enter the final suppression."""
