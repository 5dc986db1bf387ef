"""`boxmend check`: findings, statistics, and a repaired copy."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions, Writing, saved_summary
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.data.checks import check as find
from boxmend.data.checks import compute_statistics, repair
from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.findings import KINDS, Finding, Severity
from boxmend.data.formats import read
from boxmend.data.formats.writing import write
from boxmend.errors import ExitStatus, UsageError

IMAGE_KINDS = {
    "missing-image",
    "unreadable-image",
    "truncated-image",
    "size-differs",
    "exif-rotation",
    "duplicate-image",
}  # findings that come from opening image files, which no repair touches
SHOWN = 5  # findings listed of a kind; --all and --json list every one


app = App(name="check", help_format="markdown")


@app.default
def check(  # noqa: PLR0913  # the options of a command are its arguments
    *data: Data,
    reading: ReadingOptions | None = None,
    writing: Writing | None = None,
    open_images: Annotated[bool, Parameter(help="Open every image file, too.")] = True,
    fix: Annotated[bool, Parameter(help="Write a repaired copy to --out.", negative="")] = False,
    out: Annotated[Path | None, Parameter(help="Folder for the repaired copy.")] = None,
    jobs: Annotated[int | None, Parameter(help="Processes that open images.")] = None,
    all: Annotated[bool, Parameter(help="List every finding.", negative="")] = False,
    json: Json = False,
) -> int:
    """Find what is wrong with a dataset: its files, images, boxes, labels and ids.

    Exits with 1 where errors remain. With --fix --out DIR, boxes are clipped to their image, those
    with no area left are dropped, and what cannot be decided is left as it is.
    """
    reading, writing = reading or ReadingOptions(), writing or Writing()
    if fix != (out is not None):
        raise UsageError("--fix and --out DIR go together: the input is never modified")
    if out is not None:
        ensure_vacant(out)
    dataset = read(*data, images=reading.images, polygons=reading.polygons)
    with progress("opening images", quiet=json) as update:
        findings = find(dataset, open_images=open_images, jobs=jobs, progress=update)
    result: dict[str, Any] = {"statistics": compute_statistics(dataset)}
    remaining = findings
    if out is not None:
        mended, repairs = repair(dataset)
        saved = write(mended, out, None, writing.options())
        remaining = _remaining(findings, mended)
        result["repairs"] = [vars(one) for one in repairs]
        result["saved"] = saved_summary(saved)
    counts = Counter(finding.severity for finding in remaining)
    result |= {
        "errors": counts[Severity.ERROR],
        "warnings": counts[Severity.WARNING],
        "findings": [_as_json(finding) for finding in findings],
    }
    if json:
        print_json(result)
    else:
        _print(result, findings, SHOWN if not all else len(findings))
    return ExitStatus.FINDINGS if counts[Severity.ERROR] else ExitStatus.FINE


def _remaining(findings: list[Finding], mended: Dataset) -> list[Finding]:
    """The findings that hold of the repaired dataset: its own, and those about image files."""
    own = find(mended, open_images=False)
    return own + [one for one in findings if one.kind in IMAGE_KINDS and one not in own]


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": str(finding.severity),
        "file": finding.file,
        "image": finding.image,
        "annotation_id": finding.annotation_id,
        "message": finding.message,
    }


def _print(result: dict[str, Any], findings: list[Finding], shown: int) -> None:
    stats = result["statistics"]
    formats = " + ".join(stats["formats"])
    print(
        f"{formats}: {stats['images']:,} images, {stats['annotations']:,} annotations, "
        f"{len(stats['labels'])} labels"
    )
    rows = [(name, one["annotations"], one["images"]) for name, one in stats["labels"].items()]
    print_table(("label", "annotations", "images"), rows)
    print()
    by_kind = Counter(finding.kind for finding in findings)
    for kind in KINDS:
        matching = [finding for finding in findings if finding.kind == kind]
        for finding in matching[:shown]:
            print(finding)
        if by_kind[kind] > shown:
            print(f"  ... and {by_kind[kind] - shown:,} more of {kind} (--all lists them)")
    for one in result.get("repairs", [])[:shown]:
        print(
            f"{one['action']}: {one['file']}, annotation {one['annotation_id']}: {one['message']}"
        )
    if len(result.get("repairs", [])) > shown:
        print(f"  ... and {len(result['repairs']) - shown:,} more repairs (--all lists them)")
    left = " left" if "saved" in result else ""
    print(f"{result['errors']:,} errors, {result['warnings']:,} warnings{left}")
    if "saved" in result:
        say(f"wrote {result['saved']['out']}: {len(result['repairs']):,} annotations repaired")
