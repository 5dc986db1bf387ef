"""Read settings that had another name in earlier versions."""

from collections.abc import Mapping
from typing import Any

RENAMED_SETTINGS = {
    "graph": "cuda_graph",
    "pre_forward": "judging_weights",
    "optimisation.average": "optimisation.average_decay",
    "mend.alike": "mend.cluster_min_iou",
    "mend.first_look": "mend.prescreen_weight",
    "mend.first_rate": "mend.initial_label_noise",
    "mend.foreground": "mend.foreground_only",
    "mend.forward_warm_up": "mend.correct_warm_up_loss",
    "mend.judgment": "mend.judgement",
    "mend.keep": "mend.raw_box_share",
    "mend.least_keep": "mend.raw_box_min_share",
    "mend.least_new": "mend.memory_min_weight",
    "mend.missing": "mend.missing_min_score",
    "mend.near": "mend.vote_min_iou",
    "mend.off_above": "mend.disable_above",
    "mend.residual_score": "mend.residual_min_score",
    "mend.uncut": "mend.extend_past_border",
    "published.push_in_warm_up": "published.queue_warm_up_steps",
    "ca_bbc.background": "ca_bbc.include_background",
    "ca_bbc.mixing": "ca_bbc.regression_share",
    "ca_bbc.most": "ca_bbc.max_shift",
    "ca_bbc.objectness": "ca_bbc.objectness_weight",
    "ca_bbc.step": "ca_bbc.step_unit",
    "co_teaching.forget": "co_teaching.forget_rate",
    "co_teaching.ramp": "co_teaching.ramp_share",
    "disco.most": "disco.mean_box_max_weight",
    "disco.spread_weight": "disco.spread_loss_weight",
    "disco.start": "disco.correction_from",
    "disco.weight": "disco.bag_loss_weight",
    "note_rcnn.distillation": "note_rcnn.distillation_weight",
    "note_rcnn.masked_background": "note_rcnn.mask_max_background",
    "note_rcnn.masked_overlap": "note_rcnn.mask_min_iou",
    "note_rcnn.plain": "note_rcnn.plain_share",
    "note_rcnn.seeds": "note_rcnn.seed_share",
    "oa_mil.extensions": "oa_mil.extension_rounds",
    "oa_mil.weight": "oa_mil.bag_loss_weight",
}
"""The present name of each renamed setting by its earlier one, both dotted."""


def rename_settings(settings: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Return nested settings with their present names; those not renamed stay as they are."""
    renamed: dict[str, Any] = {}
    for name, value in settings.items():
        dotted = f"{section}{name}"
        present = RENAMED_SETTINGS.get(dotted, dotted).removeprefix(section)
        if isinstance(value, Mapping):
            value = rename_settings(value, f"{dotted}.")
        renamed[present] = value
    return renamed


def rename_dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their dotted names with their present names."""
    return {RENAMED_SETTINGS.get(name, name): value for name, value in settings.items()}
