"""Export doubtful annotations, or all changes of a run, to annotation tools.

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
from boxmend.data.describing import describe
from boxmend.data.files.digests import add_json_digest
from boxmend.data.files.json_text import encode_json_by_line
from boxmend.data.files.staging import ensure_vacant, stage_folder
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.formats.writing import IMAGES_AS, place_images
from boxmend.errors import UsageError
from boxmend.repair.export import coco, cvat, fiftyone, label_studio
from boxmend.repair.export.audits import audit_bundle
from boxmend.repair.export.bundle import Bundle, ImageLocations, describe_item, run_bundle
from boxmend.repair.export.selecting import select_changed, select_most_doubtful
from boxmend.runs.opening import open_finished_run, open_run_with_history, read_dataset

__all__ = ["TARGETS", "ExportOptions", "Exported", "export"]


class Target(Protocol):
    """The interface of a target module."""

    README: str
    """How to import the files, in Markdown."""

    def label_names(self, names: list[str]) -> list[str]:
        """Return distinct label names that the tool accepts, in the same order."""

    def documents(self, bundle: Bundle, places: ImageLocations) -> dict[str, bytes]:
        """Return the files to import, by name."""


TARGETS: dict[str, Target] = {
    "label-studio": label_studio,
    "cvat": cvat,
    "fiftyone": fiftyone,
    "coco": coco,
}
MANIFEST_FILE = "export.json"
README_FILE = "README.md"
MANIFEST_VERSION = 2  # 1 was handover.json


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    whole_images: bool = True
    """Include the other annotations of the images, marked as such; required for "cvat"."""
    images_as: str = "none"
    """How to put images into the output: "none", "link" or "copy"."""
    image_prefix: str | None = None
    """For "label-studio": URL before the file names of the images."""
    changes: bool = False
    """For an audit: export what `apply` would change instead of what it leaves for review."""

    def check(self, to: str) -> None:
        """Raise a UsageError for options that the target does not support."""
        if self.images_as not in IMAGES_AS:
            raise UsageError(f"images_as must be one of {', '.join(IMAGES_AS)}")
        if to == "cvat" and not self.whole_images:
            raise UsageError(
                "CVAT replaces all annotations of a task when it imports, so the other ones would "
                "be lost; omit --no-whole-images"
            )
        if to != "label-studio" and self.image_prefix is not None:
            raise UsageError(f"--image-prefix is for label-studio; {to} opens image files")


@dataclass(frozen=True, repr=False)
class Exported:
    """The result of `export`."""

    __repr__ = describe

    out: Path
    to: str
    files: tuple[str, ...]
    num_images: int
    num_suspects: int
    num_others: int  # crowd and difficult objects included
    missing: tuple[str, ...]  # image files that do not exist
    left_out: tuple[str, ...]  # images of unknown size, which are not exported
    num_improbable: int = 0  # fixes left for review that are too improbable to export

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "out": str(self.out),
            "to": self.to,
            "files": list(self.files),
            "images": self.num_images,
            "suspects": self.num_suspects,
            "others": self.num_others,
            "images_missing": len(self.missing),
            "images_left_out": len(self.left_out),
            "fixes_not_exported": self.num_improbable,
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
    all changes. `data` is the dataset or its present address, if it was moved; it is checked.
    """
    if to not in TARGETS:
        raise UsageError(f"unknown target {to!r}; known are {', '.join(TARGETS)}")
    if most is not None and most < 1:
        raise UsageError(f"--most is {most}; expected at least 1")
    options, target = options or ExportOptions(), Path(out)
    options.check(to)
    ensure_vacant(target)
    bundle = _make_bundle(run, data, most, options)
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
        num_improbable=bundle.num_improbable,
    )


def _make_bundle(
    run: str | Path,
    data: Dataset | str | Sequence[str] | None,
    most: int | None,
    options: ExportOptions,
) -> Bundle:
    """Return the annotations to export: fixes of an audited run, else changes by its ledger."""
    source = open_finished_run(run)
    facts = source.facts().get("data")
    sha256 = facts.get("sha256") if isinstance(facts, dict) else None
    if has_fixes(source):
        dataset = read_dataset(source, data)
        bundle = audit_bundle(source, dataset, most, options.changes, options.whole_images)
    else:
        opened = open_run_with_history(run, data)
        rows = select_changed(opened) if most is None else select_most_doubtful(opened, most)
        bundle = run_bundle(opened, rows, whole_images=options.whole_images)
    return replace(bundle, data_sha256=sha256)


def _place_images(folder: Path, bundle: Bundle, images_as: str) -> None:
    rows = np.array([task.row for task in bundle.tasks], np.int64)
    chosen = bundle.dataset.take_images(rows)  # tasks are sorted by row
    place_images(folder, chosen, [task.place for task in bundle.tasks], images_as)


def _manifest(bundle: Bundle, to: str) -> bytes:
    """Return the list of all exported annotations, which `import` needs to read verdicts."""
    names = TARGETS[to].label_names(bundle.label_names)
    document = encode_json_by_line(
        {
            "boxmend_export": MANIFEST_VERSION,
            "to": to,
            "data_sha256": bundle.data_sha256,
            "labels": [
                {"label": label, "label_name": name, "written_as": written}
                for label, (name, written) in enumerate(zip(bundle.label_names, names, strict=True))
            ],
            "images": [
                {
                    "file_name": task.name,
                    "width": task.width,
                    "height": task.height,
                    "annotations": [
                        {"region": item.region, **describe_item(item, bundle.label_names)}
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
        f"# {_count(bundle.count('suspect'), 'annotation')} to review, for {to}\n\n"
        f"On {_count(len(bundle.tasks), 'image')}, with {_count(others, 'other annotation')} "
        f"unchanged.\nWritten by `boxmend export`. Keep `{MANIFEST_FILE}`: `boxmend import` needs "
        "it to read verdicts.\n\n"
    )
    return (text + TARGETS[to].README).encode()


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
