"""`Mender`: mends the annotations of a dataset while a model trains on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.calibration import Share
from boxmend.auditing.predictions import Predictions
from boxmend.data.dataset import Dataset
from boxmend.data.describing import describe
from boxmend.data.fingerprint import fingerprint
from boxmend.errors import UsageError
from boxmend.repair.mender.annotations import IgnoreRegions, MendedAnnotations
from boxmend.repair.mender.beliefs import Beliefs, initial_beliefs, one_hot, revise
from boxmend.repair.mender.recording import RunWriter, ensure_unique_ids
from boxmend.repair.mender.scene import make_scene
from boxmend.repair.mender.settings import MenderSettings
from boxmend.repair.trained_runs import TrainedRun
from boxmend.runs.judgement import Judgement
from boxmend.runs.ledger import Entries

NO_EPOCH = -1  # before the first update


@dataclass(frozen=True, eq=False, repr=False)
class MenderUpdate:
    """What one update found and decided."""

    __repr__ = describe

    epoch: int
    is_warm_up: bool  # nothing changes yet
    agreement: float  # mean IoU of the annotations with their detections
    num_judged: int  # annotations in images with a detection
    num_relabelled: int
    num_unsure: int
    num_moved: int
    num_spurious: int
    num_missing: int  # objects without annotation that were seen often enough
    label_noise: Share | None  # share of wrong labels; None if it is not estimated
    box_noise: Share | None  # error of the sides as a share of the box
    notes: tuple[str, ...] = ()


class Mender:
    """Mended annotations for a training, from the detections of the model that trains on them.

    Train on `annotations()`, then call `update` with the detections of the model on the unaugmented
    training images, every epoch or every few epochs, and `finish` at the end. The folder `out`
    becomes a run, on which `boxmend report`, `audit` and `apply` work.
    """

    def __init__(
        self,
        dataset: Dataset,
        settings: MenderSettings | None = None,
        *,
        out: str | Path,
        prescreen: Any = None,
        resume: bool = False,
    ):
        """Start a run in `out`, a new or empty folder.

        `prescreen` [n, C] has class probabilities of the annotations by a classifier that did not
        see their labels; a row of NaN is unknown. With `resume`, continue the unfinished run in
        `out`: call `load_state_dict` with the state in your checkpoint, or start again without it.
        """
        ensure_unique_ids(dataset)
        self.settings = settings or MenderSettings()
        self.dataset = replace(dataset, boxes=dataset.boxes.copy(), labels=dataset.labels.copy())
        self._fingerprint = fingerprint(dataset)
        self._scene = make_scene(self.dataset)
        self._beliefs = initial_beliefs(self._scene, self.settings)
        self._annotations: MendedAnnotations | None = None
        self._was_asked = False
        self._is_finished = False
        self.last_epoch = NO_EPOCH
        self.num_updates = 0
        self._writer = RunWriter(out, self.dataset, self.settings, resume)

    def annotations(self) -> MendedAnnotations:
        """Return the annotations to train on until the next update."""
        self._was_asked = True
        if self._annotations is None:
            self._annotations = self._make_annotations()
        return self._annotations

    def update(self, epoch: int, predictions: Predictions) -> MenderUpdate:
        """Revise the annotations by the detections of the model as it is after `epoch`.

        The detections are those on the unaugmented training images, in pixels of these images, with
        a low score limit such as 0.01. Epochs rise from call to call. An error leaves the state as
        it was, so a training can go on with the annotations that it has.
        """
        self._ensure_in_turn(epoch)
        detected = self._scene.select(predictions.resolve(self.dataset))
        beliefs = revise(self._scene, self._beliefs, detected, self.settings, self.num_updates)
        update = self._describe(epoch, beliefs)
        self._writer.append(
            self._make_entries(epoch, beliefs, self._scene.mark_seen(detected)),
            self._figures(update, beliefs),
        )
        self._beliefs, self._annotations = beliefs, None
        self.last_epoch, self.num_updates = epoch, self.num_updates + 1
        return update

    def finish(self) -> TrainedRun:
        """Complete the run; `boxmend report`, `audit` and `apply` work on its folder."""
        self._ensure_unfinished()
        if not self.num_updates:
            raise UsageError(
                "the run has no update, so there is nothing to finish; call update(epoch, "
                "predictions) after each epoch"
            )
        noise = self._beliefs.estimates.labels
        summary = {
            "steps": self.num_updates,
            "epochs": self.last_epoch + 1,
            "noise": {
                "label_noise": noise.rate,
                "label_noise_low": noise.low,
                "label_noise_high": noise.high,
            },
        }
        self._writer.finish(summary)
        self._is_finished = True
        return TrainedRun(self._writer.run.path, self.dataset)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: arrays, numbers and texts by name."""
        self._ensure_unfinished()
        beliefs = self._beliefs
        noise = beliefs.estimates.labels
        arrays = {
            field.name: getattr(beliefs, field.name)
            for field in fields(beliefs)
            if isinstance(getattr(beliefs, field.name), np.ndarray)
        }
        return {
            "data_sha256": self._fingerprint,
            "epoch": self.last_epoch,
            "num_updates": self.num_updates,
            "was_asked": self._was_asked,
            "is_warm_up": beliefs.estimates.is_warm_up,
            "rate": noise.rate,
            "low": noise.low,
            "high": noise.high,
            "tau": noise.tau,
            "transition": noise.transition,
            **arrays,
            **self._writer.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned for the same dataset and settings."""
        raise NotImplementedError

    def _ensure_unfinished(self) -> None:
        if self._is_finished:
            raise UsageError(f"{self._writer.run.path}: the run is finished; make a new Mender")

    def _ensure_in_turn(self, epoch: int) -> None:
        self._ensure_unfinished()
        if not self._was_asked:
            raise UsageError(
                "update comes before the first annotations(); train on mender.annotations() first, "
                "then call update with the detections of the trained model"
            )
        if isinstance(epoch, bool) or not isinstance(epoch, int | np.integer) or epoch < 0:
            raise UsageError(f"epoch is {epoch!r}; expected a whole number from 0 on")
        if epoch <= self.last_epoch:
            raise UsageError(
                f"epoch {epoch} comes after epoch {self.last_epoch}; update every epoch at most "
                "once, in rising order (a resumed training calls load_state_dict first)"
            )

    def _make_annotations(self) -> MendedAnnotations:
        data, beliefs, rows = self.dataset, self._beliefs, self._scene.rows
        n, num_labels = len(data), len(data.label_names)
        boxes, labels = data.boxes.copy(), data.labels.copy()
        soft = one_hot(np.maximum(labels, 0), max(num_labels, 1))
        weights = np.where(data.is_ignored, 0, 1).astype(np.float32)
        boxes[rows], labels[rows], soft[rows] = beliefs.boxes, beliefs.labels, beliefs.posteriors
        weights[rows] = ~beliefs.is_spurious
        is_region = data.is_ignored & np.isfinite(data.boxes).all(axis=1)
        regions = np.flatnonzero(is_region)
        ignore = IgnoreRegions(
            data.image_rows[regions], data.boxes[regions], np.ones(len(regions), np.float32)
        )
        return MendedAnnotations(
            image_rows=data.image_rows.copy(),
            boxes=boxes,
            labels=labels,
            soft_labels=soft,
            weights=weights,
            confidences=soft[np.arange(n), np.maximum(labels, 0)],
            is_added=np.zeros(n, np.bool_),
            ignore=ignore,
        )

    def _describe(self, epoch: int, beliefs: Beliefs) -> MenderUpdate:
        objects, noise = self._scene.objects, beliefs.estimates.labels
        judgements = beliefs.judgements
        return MenderUpdate(
            epoch=int(epoch),
            is_warm_up=beliefs.estimates.is_warm_up,
            agreement=beliefs.estimates.agreement,
            num_judged=len(objects),
            num_relabelled=int((judgements == Judgement.RELABELLED).sum()),
            num_unsure=int((judgements == Judgement.DISCARDED).sum()),
            num_moved=int((beliefs.boxes != objects.boxes).any(axis=1).sum()),
            num_spurious=int(beliefs.is_spurious.sum()),
            num_missing=len(beliefs.missing),
            label_noise=Share(noise.rate, noise.low, noise.high),
            box_noise=Share(beliefs.estimates.boxes.noise, beliefs.estimates.boxes.low, beliefs.estimates.boxes.high),
        )

    def _figures(self, update: MenderUpdate, beliefs: Beliefs) -> dict[str, Any]:
        number = max(update.num_judged, 1)
        return {
            "step": self.num_updates,
            "epoch": update.epoch,
            "label_noise": beliefs.estimates.labels.rate,
            "label_noise_low": beliefs.estimates.labels.low,
            "label_noise_high": beliefs.estimates.labels.high,
            "tau": beliefs.estimates.labels.tau,
            "relabelled": update.num_relabelled / number,
            "unsure": update.num_unsure / number,
        }

    def _make_entries(self, epoch: int, beliefs: Beliefs, is_seen: Any) -> Entries:
        chosen = np.flatnonzero(is_seen)
        rows = self._scene.rows[chosen]
        order = np.argsort(rows)  # of the dataset
        chosen, rows = chosen[order], rows[order]
        data, number = self.dataset, len(rows)
        own = data.labels[rows]
        places = np.arange(number)
        p, q = beliefs.memory.evidence[chosen], beliefs.posteriors[chosen]
        boxes = data.boxes[rows].astype(np.float32)
        return Entries(
            epochs=np.full(number, epoch),
            steps=np.full(number, self.num_updates),
            annotation_ids=data.annotation_ids[rows],
            image_ids=data.image_ids[rows],
            losses=-np.log(np.maximum(p[places, own], 1e-30)),
            thresholds=np.full(number, np.nan, np.float32),
            verdicts=beliefs.judgements[chosen].astype(np.int8),
            num_candidates=np.zeros(number, np.int64),
            old_labels=own,
            new_labels=beliefs.labels[chosen],
            confidences=q[places, beliefs.labels[chosen]],
            noisy_boxes=boxes,
            matched_boxes=boxes,
            final_boxes=beliefs.boxes[chosen].astype(np.float32),
            is_kept=~beliefs.is_spurious[chosen],
        )
