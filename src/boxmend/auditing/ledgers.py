"""Audit a dataset by the ledger of a training run, and probe this audit if the run allows it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from boxmend.auditing.audit import SEED, Audit, DatasetPart, join_parts
from boxmend.auditing.calibration import Share
from boxmend.auditing.evidence import Evidence, select_objects
from boxmend.auditing.judging import AuditInputs, AuditOpinion, judge_annotations
from boxmend.auditing.run_evidence import (
    find_judged_rows,
    gather_run_evidence,
    judge_by_losses,
    read_estimate,
)
from boxmend.auditing.run_probe import (
    ProbedRun,
    calibrate_labels,
    count_found,
    estimate_bad_boxes,
    judge_settled_boxes,
    open_as_trained,
)
from boxmend.auditing.tables import make_fixes
from boxmend.data.types import Rows
from boxmend.errors import DataError
from boxmend.runs.opening import OpenRun

NOT_IN_LEDGER = ("missing", "spurious")
KINDS_NOTE = (
    "the ledger of a training run shows wrong labels, bad boxes and duplicates; to find missing "
    "and spurious annotations, give --predictions"
)
NO_PROBE_NOTE = (
    "this audit has no probe; one of a run that was trained with --probe 0.05 measures how many "
    "errors it finds"
)


def audit_ledger(opened: OpenRun) -> tuple[Audit, tuple[str, ...]]:
    """Audit the dataset of a run; return the audit, and notes for the user."""
    probed = open_as_trained(opened)
    trained = opened if probed is None else probed.opened
    rows = find_judged_rows(trained)
    if not len(rows):
        raise DataError(
            f"{opened.run.path}: the run judged no label, so there is no evidence for an audit; "
            "train with --method mend, or for more epochs if all updates were in warm-up, or give "
            "--predictions of a detector"
        )
    box_noise = read_estimate(opened.run, "box_noise")
    evidence = gather_run_evidence(trained, rows)
    opinion = _judge(trained, rows, evidence, box_noise)
    if probed is not None:
        opinion, evidence = _calibrate(probed, rows, opinion, (evidence, box_noise))
    fixes = make_fixes(trained.dataset, rows, opinion, evidence)
    part = DatasetPart(rows, opinion, fixes, fixes[0].take(rows[:0]), 0)
    result = join_parts(trained.dataset, [part])
    rates = {name: rate for name, rate in result.rates.items() if name not in NOT_IN_LEDGER}
    if probed is None:
        return replace(result, rates=rates), (KINDS_NOTE, NO_PROBE_NOTE)
    if box_noise is not None:
        rates["bad_boxes"] = estimate_bad_boxes(trained, box_noise)
    result = _leave_out_planted(probed, replace(result, rates=rates), rows)
    return result, (KINDS_NOTE, *_describe_planted(probed))


def _describe_planted(probed: ProbedRun) -> Iterator[str]:
    """Yield notes about the annotations with planted errors."""
    yield (
        f"{len(probed.rows):,} annotations are not judged, since the training saw them with "
        "planted errors; a planted error counts as fixed correctly if the fix restores your label, "
        "or comes closer to your box, which may be wrong as well"
    )
    if not probed.opened.settlement.is_moved.any():
        yield (
            "the training moved no box, so its ledger shows nothing about bad boxes; to find "
            "them, give --predictions"
        )


def _judge(
    opened: OpenRun, rows: Rows, evidence: Evidence, box_noise: Share | None
) -> AuditOpinion:
    dataset = opened.dataset
    scene = AuditInputs(
        select_objects(dataset, rows),
        select_objects(dataset, rows[:0]),
        dataset.images.sizes,
        detected=None,
        box_noise=box_noise,
    )
    labels = judge_by_losses(opened, rows, evidence)
    return judge_annotations(scene, evidence, np.random.default_rng(SEED), labels)


def _calibrate(
    probed: ProbedRun,
    rows: Rows,
    opinion: AuditOpinion,
    found: tuple[Evidence, Share | None],
) -> tuple[AuditOpinion, Evidence]:
    """Return the judgement that planted errors calibrate, and the evidence behind it."""
    evidence, box_noise = found
    opinion = replace(opinion, labels=calibrate_labels(probed, rows, opinion.labels))
    if box_noise is None:
        return opinion, evidence
    boxes = judge_settled_boxes(probed, rows, box_noise)
    return replace(opinion, boxes=boxes), replace(evidence, boxes=boxes.boxes)


def _leave_out_planted(probed: ProbedRun, audit: Audit, rows: Rows) -> Audit:
    """Return the audit with its probe, and without annotations that the training saw changed."""
    fixes, planted = audit.fixes, probed.rows
    is_left = ~np.isin(fixes.rows, planted) & ~np.isin(fixes.kept_rows, planted)
    p_wrong = {kind: column.copy() for kind, column in audit.p_wrong.items()}
    for column in p_wrong.values():
        column[planted] = np.nan
    return replace(
        audit,
        fixes=fixes.take(is_left),
        p_wrong=p_wrong,
        num_judged=int((~np.isin(rows, planted)).sum()),
        probe=count_found(probed, fixes),
    )
