"""Audit a dataset: estimate how probable errors of annotations are, and propose fixes.

The evidence comes from the detections of any detector, or from a training run. Errors planted in
memory show what the evidence of wrong annotations looks like. Comparing the two gives the
probabilities that an annotation is wrong and that its fix is right. This module needs no PyTorch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from boxmend.auditing import probing
from boxmend.auditing.calibration import Share
from boxmend.auditing.evidence import Detected, gather_evidence
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.judging import AuditOpinion, judge_annotations
from boxmend.auditing.ordering import (
    SourceView,
    is_judgeable,
    list_groups,
    normalise_order,
    sort_by_confidence,
)
from boxmend.auditing.probing import PROBE, Probe
from boxmend.auditing.tables import (
    LISTING,
    compute_p_wrong,
    join_fixes,
    make_fixes,
    make_missing_fixes,
)
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.describing import describe
from boxmend.data.detections import Detections
from boxmend.data.types import Floats, Mask, Rows, Singles
from boxmend.errors import DataError, UsageError

__all__ = ["Audit", "AuditSettings", "audit"]


SEED = 0


@dataclass(frozen=True)
class CoverageConstants:
    """When images without a detection were given to the detector, which then found nothing."""

    max_share: float = 0.05  # of such images
    few_detections: int = 2  # at least as many images have so few detections, but not none
    min_images: int = 2  # up to which the latter need not hold


COVERAGE = CoverageConstants()


class DetectionColumns(Protocol):
    """Detections by image rows and labels of the dataset, optionally with `class_scores` [m, C]."""

    @property
    def image_rows(self) -> Rows: ...
    @property
    def labels(self) -> Rows: ...
    @property
    def scores(self) -> Floats: ...
    @property
    def boxes(self) -> Floats: ...


@dataclass(frozen=True)
class AuditSettings:
    """Settings of an audit."""

    probe: float = 0.02
    """Share of annotations to disturb in memory, to measure how many errors are found; 0: none."""
    unseen: bool = False
    """Whether the detector was not trained on these images; not needed for predictions by fold."""

    def __post_init__(self) -> None:
        if not 0 <= self.probe <= 0.2:
            raise UsageError(f"probe is {self.probe}; expected a share from 0 to 0.2, like 0.02")


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """The result of an audit."""

    __repr__ = describe

    fixes: Fixes
    p_wrong: Mapping[Kind, Floats]
    """Probability [n] of each kind of error for every annotation; NaN where it was not judged."""
    missing: Fixes
    """All objects that may lack an annotation, including improbable ones."""
    rates: Mapping[str, Share]
    """Estimated shares of wrong labels, bad boxes, missing, spurious and duplicate annotations."""
    box_noise: Share
    """Bound of the usual error of an edge, as a share of the box's side."""
    num_judged: int
    num_not_looked_at: int
    """Annotations in images without a detection, which were not judged."""
    probe: Probe | None = None
    """Counts of planted errors and of those found, by kind and cause; None without a probe."""
    doubt: float = 0.0
    """How much a weak detector was doubted: 0 for a strong one, up to 1."""


def audit(
    dataset: Dataset, predictions: DetectionColumns, settings: AuditSettings | None = None
) -> Audit:
    """Audit the annotations of a dataset by the detections of a detector that did not train on it.

    The sources of a joined dataset are audited separately, since their annotators may differ. The
    result depends neither on the order of annotations nor on that of detections.
    """
    settings = settings or AuditSettings()
    result = audit_without_probe(dataset, predictions)
    if not settings.probe:
        return result
    return replace(result, probe=_run_probe(dataset, predictions, result, settings.probe))


def audit_without_probe(dataset: Dataset, predictions: DetectionColumns) -> Audit:
    """Audit as `audit` does, but plant no errors to measure how many are found."""
    if not len(predictions.labels):
        raise DataError(
            "there is no detection in the predictions, so nothing can be audited; predict again "
            "with a lower score limit"
        )
    parts = [_audit_source(dataset, predictions, group) for group in list_groups(dataset)]
    return join_parts(dataset, parts)


def _run_probe(
    dataset: Dataset, predictions: DetectionColumns, first: Audit, share: float
) -> Probe:
    """Plant errors, audit again, and count the errors found; `first` is the audit without them.

    The sources of a joined dataset are probed separately, as they are audited.
    """
    is_fine = ~np.isnan(first.p_wrong[Kind.WRONG_LABEL])
    for kind in (Kind.WRONG_LABEL, Kind.SPURIOUS, Kind.DUPLICATE):
        is_fine &= ~(first.p_wrong[kind] >= PROBE.called_min_probability)
    images = probing.select_images(dataset, np.random.default_rng(SEED))
    if images is not None:
        is_fine = is_fine[np.isin(dataset.image_rows, images)]
        predictions = _select_in_images(predictions, images, len(dataset.images))
        dataset = dataset.take_images(images)
    probes = [
        _probe_source((dataset, group), predictions, is_fine, share)
        for group in list_groups(dataset)
    ]
    return probing.add_probes(probes)


def _probe_source(
    source: tuple[Dataset, int], predictions: DetectionColumns, is_fine: Mask, share: float
) -> Probe:
    """Probe one source of a joined dataset; `is_fine` [n] marks annotations that seem right."""
    dataset, group = source
    own = normalise_order(dataset, group)
    eligible = np.flatnonzero(is_fine[own.rows])
    if len(eligible) < PROBE.min_annotations:
        return {}
    detected = _select_detections(predictions, own)
    seen = Detections(detected.image_rows, detected.labels, detected.scores, detected.boxes)
    rate = probing.compute_rate(share, len(eligible))
    probes: list[Probe] = []
    for mix in probing.MIXES:
        for seed in range(probing.count_rounds(rate, len(eligible))):
            planted = probing.plant_errors((own.dataset, eligible, seen), mix, rate, seed)
            if planted is None:
                continue
            part = _audit_source(planted.dataset, detected, group)
            counts = probing.check_fixes(planted, join_parts(planted.dataset, [part]).fixes)
            probes.append({kind: {mix.causes[kind]: counts[kind]} for kind in counts})
    return probing.add_probes(probes)


def _select_in_images(predictions: DetectionColumns, images: Rows, num_images: int) -> Detected:
    """Return the detections in these images, which are ascending.

    Their image rows are places in `images`.
    """
    place = np.full(num_images + 1, UNKNOWN)  # the last entry is for UNKNOWN
    place[images] = np.arange(len(images))
    places = place[predictions.image_rows]
    rows = np.flatnonzero(places != UNKNOWN)
    vectors = _take_class_scores(predictions, rows)
    return Detected(
        places[rows],
        predictions.labels[rows],
        predictions.scores[rows],
        predictions.boxes[rows],
        vectors,
    )


@dataclass(frozen=True, eq=False)
class DatasetPart:
    """The audit of one source of a joined dataset, by rows of the joined dataset."""

    rows: Rows
    opinion: AuditOpinion
    fixes: list[Fixes]
    missing: Fixes
    num_not_looked_at: int


def join_parts(dataset: Dataset, parts: list[DatasetPart]) -> Audit:
    """Join the audits of all sources into one."""
    kinds = [kind for kind in Kind if kind != Kind.MISSING]
    p_wrong: dict[Kind, Floats] = {kind: np.full(len(dataset), np.nan) for kind in kinds}
    for part in parts:
        for kind, column in compute_p_wrong(part.opinion).items():
            p_wrong[kind][part.rows] = column
    missing = join_fixes([part.missing for part in parts])
    fixes = [table for part in parts for table in part.fixes]
    fixes.append(missing.take(missing.p_wrong >= LISTING.min_p_wrong))
    weights = np.array([max(len(part.rows), 1) for part in parts], np.float64)
    rates = [part.opinion.estimate_rates() for part in parts]
    models = [part.opinion.box_model for part in parts]
    return Audit(
        fixes=join_fixes(fixes),
        p_wrong=p_wrong,
        missing=missing,
        rates={
            name: _average_shares([of_part[name] for of_part in rates], weights)
            for name in rates[0]
        },
        box_noise=_average_shares([Share(m.noise, m.low, m.high) for m in models], weights),
        num_judged=sum(len(part.rows) for part in parts),
        num_not_looked_at=sum(part.num_not_looked_at for part in parts),
        doubt=float(weights @ [part.opinion.doubt for part in parts] / weights.sum()),
    )


def _audit_source(dataset: Dataset, predictions: DetectionColumns, group: int) -> DatasetPart:
    """Audit one source of a joined dataset by the detections in its images."""
    own = normalise_order(dataset, group)
    detected = _select_detections(predictions, own)
    is_seen = _find_predicted_images(detected.image_rows, len(own.dataset.images))
    judged = np.flatnonzero(is_judgeable(own.dataset))
    is_looked_at = is_seen[own.dataset.image_rows[judged]]
    rows = judged[is_looked_at]
    scene = own.select_inputs(rows, detected)
    evidence = gather_evidence(scene.objects, scene.objects, detected)
    opinion = judge_annotations(scene, evidence, np.random.default_rng(SEED))
    return DatasetPart(
        rows=own.rows[rows],
        opinion=opinion,
        fixes=[own.to_joined(table) for table in make_fixes(own.dataset, rows, opinion, evidence)],
        missing=own.to_joined(make_missing_fixes(own.dataset, detected, opinion)),
        num_not_looked_at=int((~is_looked_at).sum()),
    )


def _find_predicted_images(image_rows: Rows, num_images: int) -> Mask:
    """Return which images [num_images] the detector was given.

    Images without a detection count as such if they are rare and no more than those with few
    detections. A detector that usually lists many hardly ever lists none, so a part of the
    predictions is missing then.
    """
    counts = np.bincount(image_rows, minlength=num_images)
    num_empty = int((counts == 0).sum())
    num_few = int(((counts > 0) & (counts <= COVERAGE.few_detections)).sum())
    is_plausible = num_empty <= max(num_few, COVERAGE.min_images)
    if is_plausible and num_empty <= COVERAGE.max_share * num_images:
        return np.ones(num_images, np.bool_)
    is_predicted: Mask = counts > 0
    return is_predicted


def _select_detections(predictions: DetectionColumns, own: SourceView) -> Detected:
    """Return the detections in the images of a source, by its labels, sorted by confidence."""
    image_rows = own.image_places[predictions.image_rows]
    labels = own.label_places[predictions.labels]
    known = np.flatnonzero((image_rows != UNKNOWN) & (labels != UNKNOWN))
    scores = predictions.scores[known]
    order = sort_by_confidence(image_rows[known], scores, labels[known], predictions.boxes[known])
    chosen = known[order]
    vectors = _take_class_scores(predictions, chosen)
    return Detected(
        image_rows[chosen],
        labels[chosen],
        scores[order].astype(np.float64),
        predictions.boxes[chosen].astype(np.float64),
        None if vectors is None else vectors[:, own.labels],
    )


def _take_class_scores(predictions: DetectionColumns, rows: Rows) -> Singles | None:
    """Return the class scores [rows, C] of detections; None if the predictions have none."""
    vectors: Singles | None = getattr(predictions, "class_scores", None)
    return None if vectors is None else vectors[rows]


def _average_shares(shares: list[Share], weights: Floats) -> Share:
    """Return the mean of the shares of several sources, weighted by their annotations."""
    columns = np.array([[share.value, share.low, share.high] for share in shares])
    return Share(*map(float, weights @ columns / weights.sum()))
