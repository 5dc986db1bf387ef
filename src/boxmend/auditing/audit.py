"""Audit: what is wrong with annotations, how sure that is, and how to mend it.

The evidence comes from the detections of any detector, or from a training run. Errors that are
planted in memory show what the evidence of wrong annotations looks like. From this follows how
probable it is that an annotation is wrong and that its fix is right. No PyTorch here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from boxmend.auditing import probing
from boxmend.auditing.calibration import Share
from boxmend.auditing.evidence import Detected, gather_evidence
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.judging import AuditOpinion, judge
from boxmend.auditing.ordering import (
    SourceView,
    is_judgeable,
    list_groups,
    normalise_order,
    sort_by_confidence,
)
from boxmend.auditing.probing import PROBE
from boxmend.auditing.tables import LISTING, columns_of, fixes_of, join_fixes, missing_of
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats, Rows, Singles
from boxmend.errors import DataError, UsageError

__all__ = ["Audit", "AuditSettings", "audit"]


SEED = 0
MAX_BLANK_SHARE = 0.05  # share of images without any detection up to which they count as looked at


class DetectionColumns(Protocol):
    """Detections by image rows and labels of the dataset; `class_scores` [m, C] may be there."""

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
    """How to audit."""

    probe: float = 0.02
    """Share of annotations that is disturbed in memory to measure how many are found; or 0."""
    unseen: bool = False
    """Whether the detector is known not to have trained on these images; folds say it, too."""

    def __post_init__(self) -> None:
        if not 0 <= self.probe <= 0.2:
            raise UsageError(f"probe is {self.probe}; expected a share from 0 to 0.2, like 0.02")


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found."""

    fixes: Fixes
    p_wrong: Mapping[Kind, Floats]
    """[n] By kind, for every annotation of the dataset; NaN where it was not judged."""
    missing: Fixes
    """All objects that may lack an annotation, also the improbable ones."""
    rates: Mapping[str, Share]
    """Estimated shares of wrong labels, bad boxes, missing, spurious and duplicate annotations."""
    box_noise: Share
    """How far off edges are, in shares of the side."""
    num_judged: int
    num_not_looked_at: int
    """Annotations in images of which there is no detection."""
    probe: Mapping[Kind, probing.Findings] | None = None
    """How many planted errors were found; None if none were planted."""


def audit(
    dataset: Dataset, predictions: DetectionColumns, settings: AuditSettings | None = None
) -> Audit:
    """Audit the annotations of a dataset by the detections of a detector that did not train on it.

    Datasets that were joined are audited each for itself: who annotated one says nothing about who
    annotated another. The result depends neither on the order of annotations nor of detections.
    """
    settings = settings or AuditSettings()
    found = audit_without_probe(dataset, predictions)
    if not settings.probe:
        return found
    return replace(found, probe=_run_probe(dataset, predictions, found, settings.probe))


def audit_without_probe(dataset: Dataset, predictions: DetectionColumns) -> Audit:
    """Audit without a probe."""
    if not len(predictions.labels):
        raise DataError("there is no detection in the predictions; nothing can be concluded")
    parts = [_part(dataset, predictions, group) for group in list_groups(dataset)]
    return join_parts(dataset, parts)


def _run_probe(
    dataset: Dataset, predictions: DetectionColumns, first: Audit, share: float
) -> dict[Kind, probing.Findings]:
    """Plant errors, audit, and count the errors found; see `probing`."""
    random = np.random.default_rng(SEED)
    counts = {kind: np.zeros(3, np.int64) for kind in Kind}
    is_fine = ~np.isnan(first.p_wrong[Kind.WRONG_LABEL])
    for kind in (Kind.WRONG_LABEL, Kind.SPURIOUS, Kind.DUPLICATE):
        is_fine &= ~(first.p_wrong[kind] >= PROBE.called_min_probability)
    images = probing.images_to_probe(dataset, random)
    if images is not None:
        is_fine = is_fine[np.isin(dataset.image_rows, images)]
        predictions = _within(predictions, images, len(dataset.images))
        dataset = dataset.take_images(images)
    if is_fine.sum() < PROBE.min_annotations:
        return {}
    for _ in range(probing.rounds_of(share, int(is_fine.sum()))):
        planted = probing.plant(dataset, is_fine, share, random)
        found = probing.check_fixes(
            planted, audit_without_probe(planted.dataset, predictions).fixes
        )
        for kind, one in found.items():
            counts[kind] += (one.planted, one.found, one.right)
    return {kind: probing.Findings(*one.tolist()) for kind, one in counts.items()}


def _within(predictions: DetectionColumns, images: Rows, num_images: int) -> Detected:
    """The detections in these images, ascending, by their places among them."""
    place = np.full(num_images + 1, UNKNOWN)  # the last is that of UNKNOWN
    place[images] = np.arange(len(images))
    places = place[predictions.image_rows]
    rows = np.flatnonzero(places != UNKNOWN)
    vectors = _class_scores(predictions, rows)
    return Detected(
        places[rows],
        predictions.labels[rows],
        predictions.scores[rows],
        predictions.boxes[rows],
        vectors,
    )


@dataclass(frozen=True, eq=False)
class DatasetPart:
    """The audit of one of the datasets that were joined, by rows of all."""

    rows: Rows
    opinion: AuditOpinion
    fixes: list[Fixes]
    missing: Fixes
    num_not_looked_at: int


def join_parts(dataset: Dataset, parts: list[DatasetPart]) -> Audit:
    """Join the audits of the parts into one."""
    kinds = [kind for kind in Kind if kind != Kind.MISSING]
    p_wrong: dict[Kind, Floats] = {kind: np.full(len(dataset), np.nan) for kind in kinds}
    for part in parts:
        for kind, column in columns_of(part.opinion).items():
            p_wrong[kind][part.rows] = column
    missing = join_fixes([part.missing for part in parts])
    listed = [one for part in parts for one in part.fixes]
    listed.append(missing.take(missing.p_wrong >= LISTING.min_p_wrong))
    weights = np.array([max(len(part.rows), 1) for part in parts], np.float64)
    rates = [part.opinion.rates() for part in parts]
    models = [part.opinion.box_model for part in parts]
    return Audit(
        fixes=join_fixes(listed),
        p_wrong=p_wrong,
        missing=missing,
        rates={name: _mean([one[name] for one in rates], weights) for name in rates[0]},
        box_noise=_mean([Share(one.noise, one.low, one.high) for one in models], weights),
        num_judged=sum(len(part.rows) for part in parts),
        num_not_looked_at=sum(part.num_not_looked_at for part in parts),
    )


def _part(dataset: Dataset, predictions: DetectionColumns, group: int) -> DatasetPart:
    """Audit one dataset by the detections in its images."""
    own = normalise_order(dataset, group)
    detected = _select_detections(predictions, own)
    is_seen = np.zeros(len(own.dataset.images), np.bool_)
    is_seen[detected.image_rows] = True
    if (~is_seen).sum() <= MAX_BLANK_SHARE * len(is_seen):
        is_seen[:] = True  # the detector looked, and saw nothing
    judged = np.flatnonzero(is_judgeable(own.dataset))
    is_looked_at = is_seen[own.dataset.image_rows[judged]]
    rows = judged[is_looked_at]
    scene = own.scene(rows, detected)
    evidence = gather_evidence(scene.objects, scene.objects, detected)
    opinion = judge(scene, evidence, np.random.default_rng(SEED))
    return DatasetPart(
        rows=own.rows[rows],
        opinion=opinion,
        fixes=[own.to_joined(one) for one in fixes_of(own.dataset, rows, opinion, evidence)],
        missing=own.to_joined(missing_of(own.dataset, detected, opinion)),
        num_not_looked_at=int((~is_looked_at).sum()),
    )


def _select_detections(predictions: DetectionColumns, own: SourceView) -> Detected:
    """Return the detections in the images of a source, by its labels, sorted by confidence."""
    image_rows = own.image_places[predictions.image_rows]
    labels = own.label_places[predictions.labels]
    known = np.flatnonzero((image_rows != UNKNOWN) & (labels != UNKNOWN))
    scores = predictions.scores[known]
    order = sort_by_confidence(image_rows[known], scores, labels[known], predictions.boxes[known])
    chosen = known[order]
    vectors = _class_scores(predictions, chosen)
    return Detected(
        image_rows[chosen],
        labels[chosen],
        scores[order].astype(np.float64),
        predictions.boxes[chosen].astype(np.float64),
        None if vectors is None else vectors[:, own.labels],
    )


def _class_scores(predictions: DetectionColumns, rows: Rows) -> Singles | None:
    """Return the class scores [rows, C] of detections, where there are any."""
    vectors: Singles | None = getattr(predictions, "class_scores", None)
    return None if vectors is None else vectors[rows]


def _mean(shares: list[Share], weights: Floats) -> Share:
    """The mean of shares of several datasets, by how many annotations each has."""
    columns = np.array([[one.value, one.low, one.high] for one in shares])
    return Share(*(float(one) for one in weights @ columns / weights.sum()))
