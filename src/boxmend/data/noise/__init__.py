"""Noise: disturb annotations in a known way, and keep the truth beside them.

Counts are exact, every kind of noise draws from a stream of its own, and the same input and seed
give the same bytes on every machine. Crowd and difficult objects stay as they are.
"""

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend import __version__
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.digests import add_json_digest
from boxmend.data.files.json_text import encode_json
from boxmend.data.files.staging import stage_folder
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.formats.writing import SaveResult, WriteOptions, write_into
from boxmend.data.noise import counts as numbers
from boxmend.data.noise.boxes import BOX_NOISES, disturbed, image_sizes
from boxmend.data.noise.labels import LABEL_NOISES, confused, pair, read_confusion, symmetric
from boxmend.data.noise.streams import Stream, chosen, share, uniform_rows, uniforms
from boxmend.data.noise.truth import Origin, Truth, read_truth, write_truth
from boxmend.data.types import Rows
from boxmend.errors import OutputError, UsageError

TRUTH_FILE = "truth.parquet"
RECORD_FILE = "noise.json"


@dataclass(frozen=True)
class NoiseSettings:
    """What to disturb and how much; rates are shares of the eligible annotations.

    Eligible are all but crowd and difficult objects, as far as image, label and box are known.
    """

    labels: str | None = None
    """One of "symmetric:RATE", "pair:RATE", "matrix:FILE"."""
    boxes: str | None = None
    """One of "uniform:N", "gaussian:SIGMA", "jitter:N"; the amount is in shares of the sides."""
    missing: float = 0.0
    spurious: float = 0.0
    duplicate: float = 0.0
    subset: float = 1.0
    """The share of annotations that label and box noise are confined to."""
    seed: int = 0
    clip: bool = True
    """Whether disturbed boxes end at the border of their image, where its size is known."""

    def __post_init__(self) -> None:
        for name in ("missing", "spurious", "duplicate", "subset"):
            rate = getattr(self, name)
            if not isinstance(rate, int | float) or not 0 <= rate <= 1:
                raise UsageError(f"{name} is {rate!r}; expected a share from 0 to 1, like 0.1")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError(f"seed is {self.seed!r}; expected a whole number from 0 on, like 0")
        if self.labels is not None:
            kind, amount = _parted("labels", self.labels, LABEL_NOISES, example="symmetric:0.4")
            if kind != "matrix":
                _check_amount("labels", self.labels, amount, example=f"{kind}:0.4")
        if self.boxes is not None:
            kind, amount = _parted("boxes", self.boxes, tuple(BOX_NOISES), example="uniform:0.4")
            most = sys.float_info.max if kind == "gaussian" else 1.0
            _check_amount("boxes", self.boxes, amount, example=f"{kind}:0.25", most=most)


@dataclass(frozen=True)
class Noisy:
    """A disturbed dataset, the truth about it, and what was done how often.

    Labels and boxes are counted as changed in annotations that were kept: what is missing is not
    counted as changed too, and a duplicate only as a duplicate.
    """

    dataset: Dataset
    truth: Truth
    counts: dict[str, int]


def disturb(dataset: Dataset, settings: NoiseSettings) -> Noisy:
    """Disturb a copy of a dataset; the dataset itself stays as it is."""
    eligible = _eligible(dataset)
    seed = settings.seed
    keys = uniforms(seed, Stream.SUBSET, len(eligible))
    inside = chosen(keys, share(settings.subset, len(eligible)))  # numbers within the eligible
    changed = replace(
        dataset,
        labels=_noisy_labels(dataset, eligible, inside, settings),
        boxes=_noisy_boxes(dataset, eligible, inside, settings),
    )
    is_kept = np.ones(len(dataset), np.bool_)
    is_kept[numbers.missing(eligible, settings.missing, seed)] = False
    invented = numbers.spurious(dataset, eligible, settings.spurious, seed)
    repeated = numbers.duplicates(
        changed, eligible, is_kept, rate=settings.duplicate, seed=seed, clip=settings.clip
    )
    added = numbers.joined(invented, repeated)
    # Added before the missing are taken out, so that no new annotation gets the id of one.
    full = changed.add(added.image_rows, added.labels, added.boxes) if len(added) else changed
    is_there = np.concatenate([is_kept, np.ones(len(added), np.bool_)])
    truth = _truth(dataset, full, is_kept, added.originals)
    noisy = full.take(is_there)
    return Noisy(noisy, truth, _counts(truth, len(eligible), before=len(dataset)))


def write_noisy(
    noisy: Noisy,
    settings: NoiseSettings,
    out: Path,
    options: WriteOptions,
    format: str | None = None,
) -> SaveResult:
    """Write a noisy dataset with truth.parquet and noise.json beside it, whole or not at all."""
    with stage_folder(out, sync=options.sync) as folder:
        saved = write_into(folder, noisy.dataset, format, options, out=out)
        for name in (TRUTH_FILE, RECORD_FILE):
            if name in saved.files:
                raise OutputError(
                    f"{out}: {name} would be both an annotation file of the dataset and a file "
                    "about the noise; rename the annotation file"
                )
        write_truth(noisy.truth.with_annotation_ids(saved.annotation_ids), folder / TRUTH_FILE)
        with (folder / RECORD_FILE).open("xb") as file:
            file.write(_record(noisy, settings, saved))
        ensure_unchanged(noisy.dataset)
    return saved


def fingerprint(files: dict[str, str]) -> str:
    """Join the SHA-256 of files (path -> hash) into one.

    A single file keeps its own; of several it is that of the list `sha256sum` prints of them,
    sorted by path.
    """
    if len(files) == 1:
        return next(iter(files.values()))
    listing = "".join(f"{digest}  {path}\n" for path, digest in sorted(files.items()))
    return hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()


def _parted(name: str, text: str, kinds: Sequence[str], *, example: str) -> tuple[str, str]:
    """Part "kind:amount"; a UsageError shows what is right."""
    kind, _, amount = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind not in kinds or not amount:
        raise UsageError(
            f"{name} is {text!r}; expected {', '.join(kinds)} with an amount, like {example}"
        )
    return kind, amount


def _check_amount(name: str, text: str, amount: str, *, example: str, most: float = 1.0) -> None:
    """Raise where the amount is no number within 0..`most`."""
    try:
        number = float(amount)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        expected = "from 0 to 1" if most == 1 else "from 0 on"
        raise UsageError(f"{name} is {text!r}; expected an amount {expected}, like {example}")


def _eligible(dataset: Dataset) -> Rows:
    """Rows of the annotations that may be disturbed."""
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    is_finite = np.isfinite(dataset.boxes).all(axis=1)
    return np.flatnonzero(is_known & is_finite & ~dataset.is_ignored)


def _noisy_labels(
    dataset: Dataset, eligible: Rows, inside: Rows, settings: NoiseSettings
) -> NDArray[np.int64]:
    result = dataset.labels.copy()
    if settings.labels is None:
        return result
    kind, _, amount = settings.labels.partition(":")
    rows = eligible[inside]
    labels, num_labels = dataset.labels[rows], len(dataset.label_names)
    keys = uniforms(settings.seed, Stream.LABEL_CHOICE, len(eligible))[inside]
    if kind == "symmetric":
        draws = uniforms(settings.seed, Stream.LABEL_TARGET, len(eligible))[inside]
        result[rows] = symmetric(labels, keys, draws, float(amount), num_labels)
    elif kind == "pair":
        result[rows] = pair(labels, keys, float(amount), num_labels)
    else:
        confusion = read_confusion(Path(amount), dataset.label_names)
        result[rows] = confused(labels, keys, confusion, num_labels)
    return result


def _noisy_boxes(
    dataset: Dataset, eligible: Rows, inside: Rows, settings: NoiseSettings
) -> NDArray[np.float64]:
    result = dataset.boxes.copy()
    if settings.boxes is None:
        return result
    kind, _, text = settings.boxes.partition(":")
    moves, amount, seed = BOX_NOISES[kind], float(text), settings.seed
    if amount == 0:  # nothing asked for, nothing done: not even clipping
        return result
    rows = eligible[inside]
    result[rows] = disturbed(
        dataset.boxes[rows],
        image_sizes(dataset, rows, settings.clip),
        lambda pending, attempt: uniform_rows(seed, Stream.BOXES, inside[pending], 4, attempt),
        lambda draws: moves(draws, amount),
    )
    return result


def _truth(
    clean: Dataset, full: Dataset, is_kept: NDArray[np.bool_], added_originals: Rows
) -> Truth:
    """The truth about `full`: all clean annotations, disturbed but not removed, then the added."""
    original = np.concatenate([np.arange(len(clean)), added_originals])
    origins = np.full(len(full), Origin.KEPT, np.int8)
    origins[: len(clean)][~is_kept] = Origin.MISSING
    origins[len(clean) :] = np.where(added_originals < 0, Origin.SPURIOUS, Origin.DUPLICATE)
    labels = np.append(clean.labels, UNKNOWN)[original]  # an original of -1 takes the last
    boxes = np.concatenate([clean.boxes, np.full((1, 4), np.nan)])[original]
    is_comparable = (origins == Origin.KEPT) | (origins == Origin.DUPLICATE)
    differs = (full.boxes != boxes) & ~(np.isnan(full.boxes) & np.isnan(boxes))
    return Truth(
        label_names=clean.label_names,
        annotation_ids=full.annotation_ids,
        source_ids=np.append(clean.annotation_ids, 0)[original],
        labels=labels,
        boxes=boxes,
        label_changed=is_comparable & (full.labels != labels),
        box_changed=is_comparable & differs.any(axis=1),
        origins=origins,
    )


def _counts(truth: Truth, eligible: int, *, before: int) -> dict[str, int]:
    is_kept = truth.origins == Origin.KEPT
    by_origin = np.bincount(truth.origins, minlength=len(Origin)).tolist()
    return {
        "annotations_before": before,
        "annotations_after": len(truth) - by_origin[Origin.MISSING],
        "eligible": eligible,
        "labels_changed": int((truth.label_changed & is_kept).sum()),
        "boxes_changed": int((truth.box_changed & is_kept).sum()),
        "missing": by_origin[Origin.MISSING],
        "spurious": by_origin[Origin.SPURIOUS],
        "duplicate": by_origin[Origin.DUPLICATE],
    }


def _record(noisy: Noisy, settings: NoiseSettings, saved: SaveResult) -> bytes:
    """The content of noise.json: nothing in it depends on when or where it was made."""
    described = asdict(settings)
    if settings.labels is not None and settings.labels.startswith("matrix:"):
        described["labels"] = f"matrix:{Path(settings.labels.partition(':')[2]).name}"
    record: dict[str, Any] = {
        "boxmend": __version__,
        "counts": noisy.counts,
        "files": saved.files,
        "label_names": noisy.dataset.label_names,
        "settings": described,
        "sha256": fingerprint(saved.files),
    }
    return add_json_digest(encode_json(record, indent=2, sort_keys=True))


__all__ = ["NoiseSettings", "Noisy", "Origin", "Truth", "disturb", "read_truth", "write_noisy"]
