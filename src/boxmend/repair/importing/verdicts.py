"""Import the verdicts that people gave in an annotation tool."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxmend.auditing.fixes.run_fixes import ensure_fixes, read_run_fixes
from boxmend.auditing.fixes.verdicts import (
    ACCEPT,
    REJECT,
    Verdict,
    append_verdicts,
    latest_verdicts,
    read_verdicts,
)
from boxmend.data.dataset import Dataset
from boxmend.data.files.text import escape_surrogates
from boxmend.errors import DataError
from boxmend.repair.export import cvat, label_studio
from boxmend.repair.importing import cvat as cvat_results
from boxmend.repair.importing import label_studio as label_studio_results
from boxmend.repair.importing.answers import AnswerIndex, image_verdicts, make_answer_index
from boxmend.repair.importing.tasks import ReturnedFile, read_manifest, read_tool_file
from boxmend.runs.folder import Run, sole_writer
from boxmend.runs.opening import open_finished_run, read_dataset

NAMES = {"label-studio": label_studio.label_names, "cvat": cvat.label_names}
MODE = "import"


@dataclass(frozen=True)
class Imported:
    """The result of `import_verdicts`."""

    to: str
    num_images: int
    num_unfinished: int  # images whose review is not finished
    num_foreign: int  # images that were not exported
    verdicts: tuple[Verdict, ...]  # the new ones
    num_known: int  # verdicts that the run already had
    num_stale: int  # fixes that no longer exist
    num_unreadable: int  # boxes that are rotated, outside the image, or with an unknown label
    num_beyond: int  # boxes drawn, changed or deleted without a fix

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        accepted = [verdict for verdict in self.verdicts if verdict.answer == ACCEPT]
        return {
            "from": self.to,
            "images": self.num_images,
            "images_not_finished": self.num_unfinished,
            "images_of_others": self.num_foreign,
            "accepted": sum(verdict.is_plain for verdict in accepted),
            "accepted_otherwise": sum(not verdict.is_plain for verdict in accepted),
            "rejected": sum(verdict.answer == REJECT for verdict in self.verdicts),
            "known_already": self.num_known,
            "fixes_gone": self.num_stale,
            "not_readable": self.num_unreadable,
            "beyond_fixes": self.num_beyond,
        }


def import_verdicts(
    run: str | Path,
    file: str | Path,
    export: str | Path | None = None,
    *,
    data: Dataset | str | Sequence[str] | None = None,
) -> Imported:
    """Add the verdicts in a file of Label Studio or CVAT to those of an audited run.

    `export` is the folder that `boxmend export` wrote, or its export.json. Files of CVAT need it;
    by default it is searched for next to the file. Importing a file twice changes nothing.
    """
    source = open_finished_run(run)
    ensure_fixes(source)
    path = Path(file)
    returned = _read(path, None if export is None else Path(export))
    _ensure_same_data(source, returned, path)
    dataset = read_dataset(source, data)
    fixes = read_run_fixes(source, dataset)
    names = [escape_surrogates(name) for name in dataset.label_names]
    index = make_answer_index(fixes, names, NAMES[returned.to](names))
    verdicts = (verdict for image in returned.images for verdict in image_verdicts(index, image))
    distinct = list({verdict.fix: verdict for verdict in verdicts}.values())  # of repeated images
    if not distinct and index.counts["stale"]:
        raise DataError(f"{path}: has only fixes that {source.path} does not have; export again")
    with sole_writer(source.path):
        new = _select_new(distinct, read_verdicts(source.path))
        append_verdicts(source.path, new)
    return _summarize(returned, index, new, len(distinct))


def _read(path: Path, export: Path | None) -> ReturnedFile:
    """Read a file of one of the tools."""
    data = read_tool_file(path)
    if data[:2] == b"PK":
        pieces = cvat_results.unzip(path, data)
        return cvat_results.read(path, pieces, read_manifest(path, export, "cvat"))
    data = data.removeprefix(codecs.BOM_UTF8)
    start = data[:1000].lstrip(b" \t\r\n")[:1]
    if start == b"<":
        return cvat_results.read(path, [data], read_manifest(path, export, "cvat"))
    if start in (b"[", b"{"):
        return label_studio_results.read(path, data)
    raise DataError(
        f'{path}: is neither JSON from Label Studio nor XML from CVAT ("CVAT for images 1.1")'
    )


def _ensure_same_data(run: Run, returned: ReturnedFile, path: Path) -> None:
    if returned.data_sha256 != run.facts()["data"].get("sha256"):
        raise DataError(
            f"{path}: was not exported from {run.path}, or its data changed since; name the run "
            "that `boxmend export` was called with, after an audit"
        )


def _select_new(verdicts: Iterable[Verdict], earlier: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that were not imported before and differ from the latest ones."""
    imported = {verdict for verdict in earlier if verdict.mode == MODE}
    latest = latest_verdicts(earlier)
    return [
        verdict
        for verdict in verdicts
        if verdict not in imported and _content(verdict) != _content(latest.get(verdict.fix))
    ]


def _content(verdict: Verdict | None) -> tuple[Any, ...] | None:
    return None if verdict is None else (verdict.answer, verdict.label, verdict.box)


def _summarize(
    returned: ReturnedFile, index: AnswerIndex, new: Sequence[Verdict], num_verdicts: int
) -> Imported:
    counts = index.counts
    return Imported(
        to=returned.to,
        num_images=len(returned.images),
        num_unfinished=returned.num_unfinished,
        num_foreign=returned.num_foreign,
        verdicts=tuple(new),
        num_known=num_verdicts - len(new),
        num_stale=counts["stale"],
        num_unreadable=counts["unreadable"],
        num_beyond=counts["drawn"] + counts["deleted"] + counts["others_changed"],
    )
