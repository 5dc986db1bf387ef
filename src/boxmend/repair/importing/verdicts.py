"""Reading verdicts back from what people did in another tool."""

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
from boxmend.repair.importing.answers import AnswerIndex, answer_index, verdicts_of
from boxmend.repair.importing.tasks import Returned, read_limited, read_manifest
from boxmend.runs.folder import Run, sole_writer
from boxmend.runs.opening import open_finished_run, read_dataset

NAMES = {"label-studio": label_studio.label_names, "cvat": cvat.label_names}
MODE = "import"


@dataclass(frozen=True)
class Imported:
    """What was read back."""

    to: str
    num_images: int
    num_unseen: int  # images that nobody finished
    num_foreign: int  # images that were not handed over
    verdicts: tuple[Verdict, ...]  # new ones, as they were added
    num_known: int  # verdicts that were there already
    num_stale: int  # fixes that the table does not have any more
    num_unreadable: int  # boxes that are turned, beside the image, or of no label of the dataset
    num_beyond: int  # boxes drawn, changed or deleted for which there is no fix

    def to_json(self) -> dict[str, Any]:
        """Give the counts as plain data."""
        accepted = [one for one in self.verdicts if one.answer == ACCEPT]
        return {
            "from": self.to,
            "images": self.num_images,
            "images_not_finished": self.num_unseen,
            "images_of_others": self.num_foreign,
            "accepted": sum(one.is_plain for one in accepted),
            "accepted_otherwise": sum(not one.is_plain for one in accepted),
            "rejected": sum(one.answer == REJECT for one in self.verdicts),
            "known_already": self.num_known,
            "fixes_gone": self.num_stale,
            "not_readable": self.num_unreadable,
            "beyond_fixes": self.num_beyond,
        }


def import_verdicts(
    run: str | Path,
    file: str | Path,
    handover: str | Path | None = None,
    *,
    data: Dataset | str | Sequence[str] | None = None,
) -> Imported:
    """Add the verdicts in an export of Label Studio or CVAT to those of an audited run.

    `handover` is the folder that `export` wrote, or its handover.json, which CVAT's need; by
    default it is looked for beside the file. To read the same file again changes nothing.
    """
    source = open_finished_run(run)
    ensure_fixes(source)
    path = Path(file)
    returned = _returned(path, None if handover is None else Path(handover))
    _ensure_same_data(source, returned, path)
    dataset = read_dataset(source, data)
    fixes = read_run_fixes(source, dataset)
    names = [escape_surrogates(name) for name in dataset.label_names]
    index = answer_index(fixes, names, NAMES[returned.to](names))
    found = (one for seen in returned.seen for one in verdicts_of(index, seen))
    told = list({one.fix: one for one in found}.values())  # an image may be there twice
    if not told and index.counts["stale"]:
        raise DataError(f"{path}: is about fixes that {source.path} does not have; export again")
    with sole_writer(source.path):
        new = _new(told, read_verdicts(source.path))
        append_verdicts(source.path, new)
    return _imported(returned, index, new, len(told))


def _returned(path: Path, handover: Path | None) -> Returned:
    """What is in a file, whichever tool wrote it."""
    data = read_limited(path)
    if data[:2] == b"PK":
        pieces = cvat_results.unzipped(path, data)
        return cvat_results.read(path, pieces, read_manifest(path, handover, "cvat"))
    data = data.removeprefix(codecs.BOM_UTF8)
    start = data[:1000].lstrip(b" \t\r\n")[:1]
    if start == b"<":
        return cvat_results.read(path, [data], read_manifest(path, handover, "cvat"))
    if start in (b"[", b"{"):
        return label_studio_results.read(path, data)
    raise DataError(
        f'{path}: is neither JSON from Label Studio nor XML from CVAT ("CVAT for images 1.1")'
    )


def _ensure_same_data(run: Run, returned: Returned, path: Path) -> None:
    if returned.data_sha256 != run.facts()["data"].get("sha256"):
        raise DataError(
            f"{path}: was not handed over from {run.path}, or was before its data changed; name "
            "the run that `boxmend export` was called with, after an audit"
        )


def _new(told: Iterable[Verdict], before: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts that were not read before and say something else than what stands."""
    read = {one for one in before if one.mode == MODE}
    stands = latest_verdicts(before)
    return [one for one in told if one not in read and _said(one) != _said(stands.get(one.fix))]


def _said(verdict: Verdict | None) -> tuple[Any, ...] | None:
    return None if verdict is None else (verdict.answer, verdict.label, verdict.box)


def _imported(
    returned: Returned, index: AnswerIndex, new: Sequence[Verdict], num_told: int
) -> Imported:
    counts = index.counts
    return Imported(
        to=returned.to,
        num_images=len(returned.seen),
        num_unseen=returned.num_unseen,
        num_foreign=returned.num_foreign,
        verdicts=tuple(new),
        num_known=num_told - len(new),
        num_stale=counts["stale"],
        num_unreadable=counts["unreadable"],
        num_beyond=counts["drawn"] + counts["deleted"] + counts["others_changed"],
    )
