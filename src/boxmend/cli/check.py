"""`boxmend check`: errors in a dataset, its statistics, and a repaired copy."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions, WritingOptions, saved_summary
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.data.checks import check as find_errors
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
    "near-duplicate",
}  # findings about image files, which `repair` does not change
FINDINGS_PER_KIND = 5  # printed without --all


app = App(name="check", usage="boxmend check [OPTIONS] DATA...")


@app.default
def check(  # noqa: PLR0913  # the options of a command are its arguments
    *data: Data,
    reading: ReadingOptions | None = None,
    writing: WritingOptions | None = None,
    open_images: Annotated[
        bool,
        Parameter(help="Open and validate all image files; compare those of different splits."),
    ] = True,
    fix: Annotated[bool, Parameter(help="Write a repaired copy to --out.", negative="")] = False,
    out: Annotated[Path | None, Parameter(help="Folder for the repaired copy.")] = None,
    jobs: Annotated[
        int | None, Parameter(help="Processes that open images; by default one per core.")
    ] = None,
    all: Annotated[
        bool,
        Parameter(help="List every finding; by default 5 of each kind.", negative=""),
    ] = False,
    json: Json = False,
) -> int:
    """Validate a dataset: its files, images, boxes, labels and ids.

    The exit status is 1 if errors remain. --fix --out DIR writes a repaired copy: boxes are clipped
    to their image, and boxes without area are dropped. Errors that need your
    decision stay.

    Example: boxmend check data.yaml --fix --out repaired
    """
    reading, writing = reading or ReadingOptions(), writing or WritingOptions()
    if fix != (out is not None):
        raise UsageError("--fix and --out DIR go together; boxmend never modifies the input")
    if out is not None:
        ensure_vacant(out)
    dataset = read(*data, images=reading.images, polygons=reading.polygons)
    with progress("opening images", quiet=json) as update:
        findings = find_errors(dataset, open_images=open_images, jobs=jobs, progress=update)
    result: dict[str, Any] = {"statistics": compute_statistics(dataset)}
    remaining = findings
    if out is not None:
        mended, repairs = repair(dataset)
        saved = write(mended, out, None, writing.to_write_options())
        remaining = _remaining(findings, mended)
        result["repairs"] = [vars(repaired) for repaired in repairs]
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
        _print(result, findings, FINDINGS_PER_KIND if not all else len(findings))
    return ExitStatus.FINDINGS if counts[Severity.ERROR] else ExitStatus.FINE


def _remaining(findings: list[Finding], mended: Dataset) -> list[Finding]:
    """Return the findings of the repaired dataset; those about image files are kept."""
    remaining = find_errors(mended, open_images=False)
    about_images = [finding for finding in findings if finding.kind in IMAGE_KINDS]
    return remaining + [finding for finding in about_images if finding not in remaining]


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": str(finding.severity),
        "file": finding.file,
        "image": finding.image,
        "annotation_id": finding.annotation_id,
        "message": finding.message,
    }


def _print(result: dict[str, Any], findings: list[Finding], max_findings: int) -> None:
    stats = result["statistics"]
    formats = " + ".join(stats["formats"])
    print(
        f"{formats}: {stats['images']:,} images, {stats['annotations']:,} annotations, "
        f"{len(stats['labels'])} labels"
    )
    rows = [
        (name, counts["annotations"], counts["images"]) for name, counts in stats["labels"].items()
    ]
    print_table(("label", "annotations", "images"), rows)
    print()
    by_kind = Counter(finding.kind for finding in findings)
    for kind in KINDS:
        matching = [finding for finding in findings if finding.kind == kind]
        for finding in matching[:max_findings]:
            print(finding)
        if by_kind[kind] > max_findings:
            print(f"  ... and {by_kind[kind] - max_findings:,} more of {kind} (--all lists them)")
    for repaired in result.get("repairs", [])[:max_findings]:
        place = f"{repaired['file']}, annotation {repaired['annotation_id']}"
        print(f"{repaired['action']}: {place}: {repaired['message']}")
    if len(result.get("repairs", [])) > max_findings:
        print(
            f"  ... and {len(result['repairs']) - max_findings:,} more repairs (--all lists them)"
        )
    left = " left" if "saved" in result else ""
    print(f"{result['errors']:,} errors, {result['warnings']:,} warnings{left}")
    if "saved" in result:
        say(f"wrote {result['saved']['out']}: {len(result['repairs']):,} annotations repaired")
