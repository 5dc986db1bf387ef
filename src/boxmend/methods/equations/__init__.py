"""The equations that judge labels and repair boxes, on padded batches of tensors.

These functions take and return tensors; they know no detectors, datasets or settings. `algorithm1`
composes the published method from `matching` (Eq. 15 to 19), `judgment` (Eq. 11 and the queue of
losses) and `correction` (Eq. 12 to 14). `evidence`, `label_noise`, `prescreen`, `voting` and
`box_noise` go beyond the paper: posteriors under an estimated label-noise model, and edges at
their posterior mean under an estimated box noise. Classes are 0 .. C - 1, probabilities have
background first, shapes are fixed, masks are true for real rows, and no function changes its
arguments.
"""

from boxmend.methods.equations.algorithm1 import (
    VARIANTS,
    Annotations,
    Constants,
    EnabledSteps,
    PaddedProposals,
    PreForward,
    RefinedBatch,
    refine_as_published,
)
from boxmend.methods.equations.box_noise import (
    BoxNoise,
    border_hold_share,
    count_at_border,
    count_residuals,
    edge_residuals,
    expected_boxes,
    extend_past_border,
    fit_box_noise,
    hold_at_border,
    mean_noise,
    pull_sums,
    raw_box_share,
)
from boxmend.methods.equations.correction import (
    Roles,
    averaged_boxes,
    boxes_of_class,
    is_confident,
    pseudo_labels,
    training_roles,
)
from boxmend.methods.equations.evidence import (
    combine_evidence,
    foreground_probabilities,
    posterior,
    posterior_judgements,
    raise_to_floor,
    soft_targets,
    update_memory,
)
from boxmend.methods.equations.judgment import (
    acceptance_from_rate,
    empty_queue,
    judge,
    judge_one_by_one,
    judged_probabilities,
    label_losses,
    push,
    threshold,
)
from boxmend.methods.equations.label_noise import (
    NoiseModel,
    fit_noise_model,
    fit_rate_and_temperature,
    fit_temperature,
    fit_transition,
    log_likelihood,
    rate_interval,
    symmetric_transition,
)
from boxmend.methods.equations.matching import (
    alpha_from_rate,
    candidate_boxes,
    candidate_mask,
    center_distance,
    center_fitness,
    extent_mismatch,
    matched_boxes,
    top_candidates,
    top_proposals,
)
from boxmend.methods.equations.prescreen import Belief, PrescreenResult, prescreen_labels
from boxmend.methods.equations.voting import expected_scores, vote_weights, voted_boxes
from boxmend.runs.judgement import Judgement

__all__ = [
    "VARIANTS",
    "Annotations",
    "Belief",
    "BoxNoise",
    "Constants",
    "EnabledSteps",
    "Judgement",
    "NoiseModel",
    "PaddedProposals",
    "PreForward",
    "PrescreenResult",
    "RefinedBatch",
    "Roles",
    "acceptance_from_rate",
    "alpha_from_rate",
    "averaged_boxes",
    "border_hold_share",
    "boxes_of_class",
    "candidate_boxes",
    "candidate_mask",
    "center_distance",
    "center_fitness",
    "combine_evidence",
    "count_at_border",
    "count_residuals",
    "edge_residuals",
    "empty_queue",
    "expected_boxes",
    "expected_scores",
    "extend_past_border",
    "extent_mismatch",
    "fit_box_noise",
    "fit_noise_model",
    "fit_rate_and_temperature",
    "fit_temperature",
    "fit_transition",
    "foreground_probabilities",
    "hold_at_border",
    "is_confident",
    "judge",
    "judge_one_by_one",
    "judged_probabilities",
    "label_losses",
    "log_likelihood",
    "matched_boxes",
    "mean_noise",
    "posterior",
    "posterior_judgements",
    "prescreen_labels",
    "pseudo_labels",
    "pull_sums",
    "push",
    "raise_to_floor",
    "rate_interval",
    "raw_box_share",
    "refine_as_published",
    "soft_targets",
    "symmetric_transition",
    "threshold",
    "top_candidates",
    "top_proposals",
    "training_roles",
    "update_memory",
    "vote_weights",
    "voted_boxes",
]
