"""Refinement: the equations that judge labels and mend boxes, on padded batches of tensors.

Tensors in, tensors out: nothing here knows of detectors, datasets or settings. `algorithm1`
composes the published method of `matching` (Eq. 15 to 19), `judgment` (Eq. 11 and the queue of
losses) and `correction` (Eq. 12 to 14). `evidence`, `label_noise`, `losses`, `voting` and
`box_noise` go beyond it: soft verdicts with memory under an estimated noise model, and boxes whose
edges lie where raw box and vote let them be expected under the estimated box noise. Classes are
0 .. C - 1, probabilities have background first, shapes are fixed, masks are true for real rows,
and no function changes its arguments.
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
    TYPICAL_ERROR,
    BoxNoise,
    count_at_border,
    count_residuals,
    edge_residuals,
    expected_boxes,
    fit_box_noise,
    held_at_border,
    keep_share,
    pull_sums,
    share_held,
    uncut_boxes,
)
from boxmend.methods.equations.correction import (
    Roles,
    averaged_boxes,
    is_confident,
    pseudo_labels,
    regressed_for,
    training_roles,
)
from boxmend.methods.equations.evidence import (
    foreground_probabilities,
    posterior,
    posterior_verdicts,
    raised_to,
    remember,
    weighed,
)
from boxmend.methods.equations.judgment import (
    acceptance_from_rate,
    empty_queue,
    judge,
    judge_one_by_one,
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
from boxmend.methods.equations.losses import (
    forward_corrected_loss,
    soft_cross_entropy,
    soft_targets,
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
from boxmend.methods.equations.voting import scores_under, vote_weights, voted_boxes
from boxmend.runs.judgement import Judgement

__all__ = [
    "TYPICAL_ERROR",
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
    "candidate_boxes",
    "candidate_mask",
    "center_distance",
    "center_fitness",
    "count_at_border",
    "count_residuals",
    "edge_residuals",
    "empty_queue",
    "expected_boxes",
    "extent_mismatch",
    "fit_box_noise",
    "fit_noise_model",
    "fit_rate_and_temperature",
    "fit_temperature",
    "fit_transition",
    "foreground_probabilities",
    "forward_corrected_loss",
    "held_at_border",
    "is_confident",
    "judge",
    "judge_one_by_one",
    "keep_share",
    "label_losses",
    "log_likelihood",
    "matched_boxes",
    "posterior",
    "posterior_verdicts",
    "prescreen_labels",
    "pseudo_labels",
    "pull_sums",
    "push",
    "raised_to",
    "rate_interval",
    "refine_as_published",
    "regressed_for",
    "remember",
    "scores_under",
    "share_held",
    "soft_cross_entropy",
    "soft_targets",
    "symmetric_transition",
    "threshold",
    "top_candidates",
    "top_proposals",
    "training_roles",
    "uncut_boxes",
    "vote_weights",
    "voted_boxes",
    "weighed",
]
