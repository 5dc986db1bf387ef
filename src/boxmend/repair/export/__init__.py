"""Handing over: doubtful annotations, or all changes of a run, to the tools people annotate with.

`export` selects annotations of a finished run and writes their images, with the suggested labels
and boxes as pre-annotations, in the format of another tool. Each target is one module.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from boxmend.auditing.fixes.run_fixes import has_fixes
from boxmend.data.dataset import Dataset
from boxmend.data.files.digests import add_json_digest
from boxmend.data.files.json_text import encode_json_by_line
from boxmend.data.files.staging import ensure_vacant, stage_folder
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.formats.writing import IMAGES_AS, place_images
from boxmend.errors import UsageError
from boxmend.repair.export import coco, cvat, fiftyone, label_studio
from boxmend.repair.export.audits import audited
from boxmend.repair.export.bundle import Bundle, ImageLocations, bundle_of, record
from boxmend.repair.export.selecting import changed, most_doubtful
from boxmend.runs.opening import open_finished_run, open_run_with_history, read_dataset

__all__ = ["TARGETS", "ExportOptions", "Exported", "export"]


class Target(Protocol):
    """What the module of a target offers to this room."""

    README: str
    """How to import the files, in Markdown."""

    def label_names(self, names: list[str]) -> list[str]:
        """The label names as the tool can have them, in the same order, none twice."""

    def documents(self, bundle: Bundle, places: ImageLocations) -> dict[str, bytes]:
        """The files to import, by name."""


TARGETS: dict[str, Target] = {
    "label-studio": label_studio,
    "cvat": cvat,
    "fiftyone": fiftyone,
    "coco": coco,
}
MANIFEST_FILE = "handover.json"
README_FILE = "README.md"
MANIFEST_VERSION = 1


@dataclass(frozen=True)
class ExportOptions:
    """How to hand over, as far as it is the user's choice."""

    whole_images: bool = True
    """Also give the other annotations of an image, marked as such; for "cvat" always so."""
    images_as: str = "none"
    """Put the images into the output, too: "none", "link" or "copy"."""
    image_prefix: str | None = None
    """For "label-studio": what to put in front of an image's name to get its address."""
    changes: bool = False
    """Of an audit: what `apply` would change, instead of what it leaves for review."""

    def check(self, to: str) -> None:
        """Raise a UsageError where a target cannot be written so."""
        if self.images_as not in IMAGES_AS:
            raise UsageError(f"images_as must be one of {', '.join(IMAGES_AS)}")
        if to == "cvat" and not self.whole_images:
            raise UsageError(
                "CVAT replaces all annotations of a task when it imports, so the others would be "
                "lost; leave --no-whole-images out"
            )
        if to != "label-studio" and self.image_prefix is not None:
            raise UsageError(f"--image-prefix is for label-studio; {to} opens image files")


@dataclass(frozen=True)
class Exported:
    """What was handed over."""

    out: Path
    to: str
    files: tuple[str, ...]
    num_images: int
    num_suspects: int
    num_others: int  # crowd and difficult objects included
    missing: tuple[str, ...]  # image files that are not there
    left_out: tuple[str, ...]  # images whose size is not known, and all suspects on them
    num_unasked: int = 0  # fixes left for review that are too improbable

    def to_json(self) -> dict[str, Any]:
        """Give the facts as plain data."""
        return {
            "out": str(self.out),
            "to": self.to,
            "files": list(self.files),
            "images": self.num_images,
            "suspects": self.num_suspects,
            "others": self.num_others,
            "images_missing": len(self.missing),
            "images_left_out": len(self.left_out),
            "fixes_not_handed_over": self.num_unasked,
        }


def export(
    run: str | Path,
    out: str | Path,
    to: str,
    *,
    most: int | None = None,
    data: Dataset | str | Sequence[str] | None = None,
    options: ExportOptions | None = None,
) -> Exported:
    """Write the changes of a finished run into `out`, a new or empty folder, for another tool.

    `to` is one of TARGETS. `most` selects that many of the most doubtful annotations instead of
    all changes. `data` says where the dataset is now, or is it; it is checked as by `apply`.
    """
    if to not in TARGETS:
        raise UsageError(f"unknown target {to!r}; known are {', '.join(TARGETS)}")
    if most is not None and most < 1:
        raise UsageError(f"--most is {most}; expected at least 1")
    options, target = options or ExportOptions(), Path(out)
    options.check(to)
    ensure_vacant(target)
    bundle = _bundle(run, data, most, options)
    places = ImageLocations(target, options.images_as, options.image_prefix)
    files = {
        **TARGETS[to].documents(bundle, places),
        MANIFEST_FILE: _manifest(bundle, to),
        README_FILE: _readme(bundle, to),
    }
    with stage_folder(target) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        _place_images(folder, bundle, options.images_as)
        ensure_unchanged(bundle.dataset)
    return Exported(
        out=target,
        to=to,
        files=tuple(files),
        num_images=len(bundle.tasks),
        num_suspects=bundle.count("suspect"),
        num_others=bundle.count("other") + bundle.count("ignored"),
        missing=tuple(task.path for task in bundle.tasks if not os.path.isfile(task.path)),
        left_out=tuple(bundle.left_out),
        num_unasked=bundle.num_unasked,
    )


def _bundle(
    run: str | Path,
    data: Dataset | str | Sequence[str] | None,
    most: int | None,
    options: ExportOptions,
) -> Bundle:
    """What to hand over: fixes where the run was audited, else what its ledger says."""
    source = open_finished_run(run)
    facts = source.facts().get("data")
    sha256 = facts.get("sha256") if isinstance(facts, dict) else None
    if has_fixes(source):
        dataset = read_dataset(source, data)
        bundle = audited(source, dataset, most, options.changes, options.whole_images)
    else:
        opened = open_run_with_history(run, data)
        rows = changed(opened) if most is None else most_doubtful(opened, most)
        bundle = bundle_of(opened, rows, whole_images=options.whole_images)
    return replace(bundle, data_sha256=sha256)


def _place_images(folder: Path, bundle: Bundle, images_as: str) -> None:
    rows = np.array([task.row for task in bundle.tasks], np.int64)
    chosen = bundle.dataset.take_images(rows)  # in the same order: tasks are sorted by row
    place_images(folder, chosen, [task.place for task in bundle.tasks], images_as)


def _manifest(bundle: Bundle, to: str) -> bytes:
    """What was handed over, whatever the tool makes of it: verdicts are read back against this."""
    names = TARGETS[to].label_names(bundle.label_names)
    document = encode_json_by_line(
        {
            "boxmend_handover": MANIFEST_VERSION,
            "to": to,
            "data_sha256": bundle.data_sha256,
            "labels": [
                {"label": label, "label_name": own, "written_as": written}
                for label, (own, written) in enumerate(zip(bundle.label_names, names, strict=True))
            ],
            "images": [
                {
                    "file_name": task.name,
                    "width": task.width,
                    "height": task.height,
                    "annotations": [
                        {"region": item.region, **record(item, bundle.label_names)}
                        for item in task.items
                    ],
                }
                for task in bundle.tasks
            ],
        }
    )
    return add_json_digest(document)


def _readme(bundle: Bundle, to: str) -> bytes:
    others = bundle.count("other") + bundle.count("ignored")
    text = (
        f"# {_many(bundle.count('suspect'), 'annotation')} to look at, for {to}\n\n"
        f"On {_many(len(bundle.tasks), 'image')}, beside {_many(others, 'other annotation')} given "
        f"as annotated.\nWritten by `boxmend export`; `{MANIFEST_FILE}` lists all of it for "
        "reading verdicts back, so keep it.\n\n"
    )
    return (text + TARGETS[to].README).encode()


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
