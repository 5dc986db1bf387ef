"""`Mender`: mends the annotations of a dataset while a model trains on them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.calibration import Share
from boxmend.auditing.evidence import Detected
from boxmend.auditing.notes import warning
from boxmend.auditing.predictions import Predictions
from boxmend.auditing.predictions.catalogue import make_catalogue
from boxmend.data.arguments import check_type
from boxmend.data.dataset import Dataset
from boxmend.data.describing import describe
from boxmend.data.fingerprint import fingerprint
from boxmend.data.types import Singles
from boxmend.errors import DataError, UsageError
from boxmend.repair.mender.agreement import check_agreement
from boxmend.repair.mender.annotations import IgnoreRegions, MendedAnnotations
from boxmend.repair.mender.beliefs import Beliefs, find_missing_objects, initial_beliefs, revise
from boxmend.repair.mender.classes import Premises, class_posteriors, prior_posteriors
from boxmend.repair.mender.memory import Sightings
from boxmend.repair.mender.posteriors import one_hot
from boxmend.repair.mender.prescreen import fit_prior, read_prescreen
from boxmend.repair.mender.recording import RunWriter, ensure_unique_ids
from boxmend.repair.mender.scene import make_scene
from boxmend.repair.mender.settings import MenderSettings
from boxmend.repair.mender.state import flatten, read_value, restore
from boxmend.repair.mender.visits import (
    describe_noise,
    list_confusions,
    make_entries,
    sum_posteriors,
)
from boxmend.repair.trained_runs import TrainedRun
from boxmend.runs.judgement import Judgement

NO_EPOCH = -1  # before the first update
UNFIT = warning(
    "the detections fit the annotations of other images as well as those of their own, so this "
    "update changes nothing; after a first epoch this is usual, later check that the detections "
    "belong to these images"
)


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
    label_noise: Share  # share of wrong labels
    box_noise: Share  # error of the sides as a share of the box
    notes: tuple[str, ...] = ()  # for the user; warnings among them are Python warnings, too


class Mender:
    """Mended annotations for a training, from the detections of the model that trains on them.

    Train on `annotations()`, then call `update` with the detections of the model on the unaugmented
    training images, every epoch or every few epochs, and `finish` at the end. The folder `out`
    becomes a run, on which `boxmend report`, `audit` and `apply` work. In a training of several
    processes only one has a Mender and sends its annotations to the others.
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
        check_type("dataset", dataset, Dataset, "boxmend.load(...)")
        ensure_unique_ids(dataset)
        self.settings = MenderSettings() if settings is None else settings
        check_type("settings", self.settings, MenderSettings, "boxmend.MenderSettings(...)")
        self.dataset = replace(dataset, boxes=dataset.boxes.copy(), labels=dataset.labels.copy())
        self.last_epoch = NO_EPOCH
        self.num_updates = 0
        self._fingerprint = fingerprint(dataset)
        self._catalogue = make_catalogue(dataset)
        self._shown_notes: set[str] = set()
        self._premises = self._make_premises(prescreen)
        self._beliefs = initial_beliefs(self._premises)
        self._num_warm_up_updates = 0
        self._annotations: MendedAnnotations | None = None
        self._is_trained_on = False
        self._is_finished = False
        self._writer = RunWriter(out, self.dataset, self.settings, resume)

    @property
    def num_judging_updates(self) -> int:
        """The number of updates after warm-up; only these change annotations."""
        return self.num_updates - self._num_warm_up_updates

    def annotations(self) -> MendedAnnotations:
        """Return the annotations to train on until the next update."""
        self._is_trained_on = True
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
        detected, notes = self._read(predictions)
        beliefs = self._beliefs
        if detected is not None:
            beliefs = revise(self._premises, beliefs, detected, self.num_updates)
        seen = np.zeros(0, np.int64)
        if detected is not None:
            seen = np.flatnonzero(self._premises.scene.mark_seen(detected))
        notes += self._check_classes(beliefs)
        update = self._describe(int(epoch), beliefs, len(seen), notes)
        entries = make_entries(self.dataset, self._premises, beliefs, seen, self.num_updates)
        self._writer.append(entries, self._figures(update, beliefs))
        self._beliefs, self._annotations = beliefs, None
        self._num_warm_up_updates += beliefs.estimates.is_warm_up
        self.last_epoch, self.num_updates = int(epoch), self.num_updates + 1
        self._warn(notes)
        return update

    def finish(self) -> TrainedRun:
        """Complete the run; `boxmend report`, `audit` and `apply` work on its folder."""
        self._ensure_unfinished()
        if not self.num_updates:
            raise UsageError(
                "the run has no update, so there is nothing to finish; call update(epoch, "
                "predictions) after each epoch"
            )
        labels = self._premises.labels
        sums = sum_posteriors(self._compute_posteriors(self._beliefs), labels)
        confusions = list_confusions(sums, labels, self.dataset.label_names)
        self._writer.finish(
            {
                "steps": self.num_updates,
                "warm_up_steps": self._num_warm_up_updates,
                "noise": {**self._describe_noise(self._beliefs), "confusions": confusions},
            }
        )
        self._is_finished = True
        return TrainedRun(self._writer.run.path, self.dataset)

    def close(self) -> None:
        """Release the folder without completing the run, which can be resumed; else `finish`."""
        self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: arrays, numbers and texts by name."""
        self._ensure_unfinished()
        return {
            "data_sha256": self._fingerprint,
            "has_prescreen": self._premises.prior is not None,
            "last_epoch": self.last_epoch,
            "num_updates": self.num_updates,
            "num_warm_up_updates": self._num_warm_up_updates,
            "is_trained_on": self._is_trained_on,
            **flatten(self._beliefs, "beliefs"),
            **self._writer.state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned for the same dataset, settings and prescreen."""
        self._ensure_unfinished()
        if str(read_value(state, "data_sha256")) != self._fingerprint:
            raise DataError(
                "the state belongs to another dataset, or its annotations have changed since; "
                "restore them, or start a new run"
            )
        if bool(read_value(state, "has_prescreen")) != (self._premises.prior is not None):
            raise UsageError(
                "the state was saved with another prescreen; make the Mender with the same one"
            )
        beliefs = restore(self._beliefs, state, "beliefs")
        self._writer.load_state(state, int(read_value(state, "num_updates")))
        self._beliefs, self._annotations = beliefs, None
        self.last_epoch = int(read_value(state, "last_epoch"))
        self.num_updates = int(read_value(state, "num_updates"))
        self._num_warm_up_updates = int(read_value(state, "num_warm_up_updates"))
        self._is_trained_on = bool(read_value(state, "is_trained_on"))

    def _make_premises(self, prescreen: Any) -> Premises:
        scene, prior = make_scene(self.dataset), None
        if prescreen is not None and self.settings.prescreen_weight != 0:
            p = read_prescreen(prescreen, self.dataset)[scene.rows]
            prior = fit_prior(p, scene.objects.labels, self.settings)
            if prior is None:
                self._warn((warning(_describe_weak_prescreen(int((~np.isnan(p)).all(1).sum()))),))
        return Premises(scene, self.settings, prior)

    def _read(self, predictions: Predictions) -> tuple[Detected | None, tuple[str, ...]]:
        """Return the detections and notes; None if they do not fit during warm-up."""
        if not isinstance(predictions, Predictions):
            raise UsageError(
                f"predictions is {type(predictions).__name__}; expected boxmend.Predictions, which "
                "also reads results of Ultralytics and torchvision"
            )
        found = predictions.resolve(self.dataset, is_compared=False, catalogue=self._catalogue)
        notes = tuple(found.notes)
        if not len(found):
            return None, (*notes, warning("there is no detection, so this update changes nothing"))
        detected = self._premises.scene.select(found)
        if check_agreement(self._premises.scene, detected):
            return detected, notes
        if not self._beliefs.estimates.is_warm_up:
            raise DataError(
                "the detections fit the annotations of other images as well as those of their own; "
                "check that image ids and boxes are in the same order"
            )
        return None, (*notes, UNFIT)

    def _check_classes(self, beliefs: Beliefs) -> tuple[str, ...]:
        """Return a warning if the detections contradict more labels than chance would."""
        noise, num_labels = self._describe_noise(beliefs), len(self.dataset.label_names)
        low = noise.get("label_noise_low", 0.0)
        if beliefs.estimates.is_warm_up or num_labels < 2 or low <= 1 - 1 / num_labels:
            return ()
        return (
            warning(
                f"the detections contradict {low:.0%} of the labels or more, which is worse than "
                "chance; check that their classes have the order of the dataset's label_names"
            ),
        )

    def _warn(self, notes: tuple[str, ...]) -> None:
        """Show every note that is a warning once."""
        for note in notes:
            if note.startswith(warning("")) and note not in self._shown_notes:
                self._shown_notes.add(note)
                warnings.warn(note.removeprefix(warning("")), stacklevel=3)

    def _ensure_unfinished(self) -> None:
        if self._is_finished:
            raise UsageError(f"{self._writer.run.path}: the run is finished; make a new Mender")

    def _ensure_in_turn(self, epoch: int) -> None:
        self._ensure_unfinished()
        if not self._is_trained_on:
            raise UsageError(
                "update comes before the first annotations(); train on mender.annotations() first, "
                "then call update with the detections of the trained model"
            )
        if isinstance(epoch, bool) or not isinstance(epoch, int | np.integer) or epoch < 0:
            raise UsageError(f"epoch is {epoch!r}; expected a whole number from 0 on")
        if epoch <= self.last_epoch:
            raise UsageError(
                f"epoch {epoch} comes after epoch {self.last_epoch}; update an epoch once, and "
                "epochs in rising order (a resumed training calls load_state_dict first)"
            )

    def _compute_posteriors(self, beliefs: Beliefs) -> Singles:
        if not beliefs.estimates.judges_labels:
            return prior_posteriors(self._premises)
        noise = beliefs.estimates.labels
        return class_posteriors(self._premises, beliefs.memory, noise, beliefs.lost)

    def _make_annotations(self) -> MendedAnnotations:
        data, beliefs, rows = self.dataset, self._beliefs, self._premises.scene.rows
        added = self._find_missing("add")
        boxes, labels = data.boxes.copy(), data.labels.copy()
        weights, confidences = np.where(data.is_ignored, 0.0, 1.0), np.ones(len(data))
        boxes[rows], labels[rows] = beliefs.boxes, beliefs.labels
        weights[rows], confidences[rows] = ~beliefs.is_spurious, beliefs.confidences
        images = self._premises.scene.images[added.image_rows]
        columns = [
            np.concatenate(pair)
            for pair in (
                (data.image_rows, images),
                (boxes, added.boxes),
                (labels, added.labels),
                (weights, np.ones(len(added))),
                (confidences, added.p_fix),
            )
        ]
        return MendedAnnotations(
            image_rows=columns[0],
            boxes=columns[1],
            labels=columns[2],
            weights=columns[3].astype(np.float32),
            confidences=columns[4].astype(np.float32),
            is_added=np.arange(len(columns[2])) >= len(data),
            ignore=self._make_regions(),
            make_soft_labels=partial(self._make_soft_labels, beliefs, columns[2]),
        )

    def _make_soft_labels(self, beliefs: Beliefs, labels: Any) -> Singles:
        soft = one_hot(labels, len(self.dataset.label_names))
        if self.settings.soft_labels:
            soft[self._premises.scene.rows] = self._compute_posteriors(beliefs)
        return soft

    def _make_regions(self) -> IgnoreRegions:
        data, found = self.dataset, self._find_missing("ignore")
        own = np.flatnonzero(data.is_ignored & np.isfinite(data.boxes).all(axis=1))
        return IgnoreRegions(
            np.concatenate([data.image_rows[own], self._premises.scene.images[found.image_rows]]),
            np.concatenate([data.boxes[own], found.boxes]),
            np.concatenate([np.ones(len(own)), found.p_missing]).astype(np.float32),
        )

    def _find_missing(self, use: str) -> Sightings:
        """Return the objects without annotation if the settings have this use for them."""
        found = find_missing_objects(self._premises, self._beliefs)
        return found if self.settings.missing == use else found.take(np.zeros(0, np.int64))

    def _describe_noise(self, beliefs: Beliefs) -> dict[str, Any]:
        has_prior = self._premises.prior is not None
        return describe_noise(beliefs, self.settings, is_prior=has_prior)

    def _describe(
        self, epoch: int, beliefs: Beliefs, num_judged: int, notes: tuple[str, ...]
    ) -> MenderUpdate:
        noise, judgements = self._describe_noise(beliefs), beliefs.judgements

        def share(name: str) -> Share:
            value = noise[name]
            return Share(value, noise.get(f"{name}_low", value), noise.get(f"{name}_high", value))

        return MenderUpdate(
            epoch=epoch,
            is_warm_up=beliefs.estimates.is_warm_up,
            agreement=beliefs.estimates.agreement,
            num_judged=num_judged,
            num_relabelled=int((judgements == Judgement.RELABELLED).sum()),
            num_unsure=int((judgements == Judgement.DISCARDED).sum()),
            num_moved=int((beliefs.boxes != self._premises.scene.objects.boxes).any(axis=1).sum()),
            num_spurious=int(beliefs.is_spurious.sum()),
            num_missing=len(find_missing_objects(self._premises, beliefs)),
            label_noise=share("label_noise"),
            box_noise=share("box_noise"),
            notes=notes,
        )

    def _figures(self, update: MenderUpdate, beliefs: Beliefs) -> dict[str, Any]:
        """Return the line of metrics.jsonl about an update."""
        number = max(len(self._premises.labels), 1)
        estimates = beliefs.estimates
        return {
            "step": self.num_updates,
            "epoch": self.num_updates,
            "trainer_epoch": update.epoch,
            **self._describe_noise(beliefs),
            "tau": estimates.labels.tau,
            "prescreen_tau": estimates.labels.prescreen_tau,
            "keep": estimates.boxes.precision if estimates.mends_boxes else 1.0,
            "agreement": update.agreement,
            "relabelled": update.num_relabelled / number,
            "unsure": update.num_unsure / number,
            "moved": update.num_moved / number,
            "spurious": update.num_spurious / number,
            "missing": update.num_missing / number,
        }


def _describe_weak_prescreen(num_annotations: int) -> str:
    return (
        f"the prescreen of {num_annotations:,} annotations says too little about the label noise "
        "and is ignored; it needs about a thousand annotations, and features that tell the classes "
        "apart"
    )
