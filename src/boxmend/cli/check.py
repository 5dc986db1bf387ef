"""`boxmend check`: errors in a dataset, its statistics, and a repaired copy."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions, WritingOptions, saved_summary
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.data.checks import LeftOut, Repair, compute_statistics, leave_out_broken, repair
from boxmend.data.checks import check as find_errors
from boxmend.data.checks.leaving_out import LEFT_OUT
from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.findings import KINDS, Finding, Severity
from boxmend.data.formats import read
from boxmend.data.formats.coco.outlines import write_outlined_boxes
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
    drop_malformed: Annotated[
        bool,
        Parameter(
            help="With --fix, leave out broken lines, annotations and images, and list them.",
            negative="",
        ),
    ] = False,
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
    to their image, and boxes without area are dropped. With other errors nothing is written, unless
    --drop-malformed leaves out what is broken.

    Example: boxmend check data.yaml --fix --drop-malformed --out repaired
    """
    reading, writing = reading or ReadingOptions(), writing or WritingOptions()
    if fix != (out is not None):
        raise UsageError("--fix and --out DIR go together; boxmend never modifies the input")
    if drop_malformed and not fix:
        raise UsageError("--drop-malformed leaves out entries of a copy; add --fix --out DIR")
    if out is not None:
        ensure_vacant(out)
    dataset = read(*data, images=reading.images, polygons=reading.polygons)
    with progress("opening images", quiet=json) as update:
        findings = find_errors(dataset, open_images=open_images, jobs=jobs, progress=update)
    result: dict[str, Any] = {"statistics": compute_statistics(dataset)}
    remaining, unrepaired = findings, list[Finding]()
    if out is not None:
        mended, repairs, left = _repair(dataset, findings, drop_malformed)
        unrepaired = [finding for finding in left if finding.severity is Severity.ERROR]
        if not unrepaired:
            if reading.polygons == "box":
                mended = write_outlined_boxes(mended)
            saved = write(mended, out, None, writing.to_write_options())
            remaining = left
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
    if unrepaired:
        say(_explain_nothing_written(unrepaired, drop_malformed))
    return ExitStatus.FINDINGS if counts[Severity.ERROR] else ExitStatus.FINE


def _repair(
    dataset: Dataset, findings: list[Finding], drop_malformed: bool
) -> tuple[Dataset, list[Repair], list[Finding]]:
    """Return the repaired dataset, the repairs, and the findings about the repaired dataset."""
    left = LeftOut(dataset, [], frozenset())
    if drop_malformed:
        left = leave_out_broken(dataset, findings)
    mended, repairs = repair(left.dataset)
    kept = [finding for finding in findings if finding not in left.findings]
    return mended, [*left.entries, *repairs], _remaining(kept, mended)


def _explain_nothing_written(errors: list[Finding], drop_malformed: bool) -> str:
    count = f"{len(errors):,} error{'s' * (len(errors) > 1)}"
    text = f"nothing was written: --fix cannot repair {count}, such as {errors[0]}"
    if drop_malformed:
        return f"{text}\nCorrect them by hand: they are about no entry that can be left out."
    return f"{text}\nCorrect them, or add --drop-malformed to leave out what is broken."


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
    _print_repairs(result.get("repairs", []), max_findings)
    left = " left" if "saved" in result else ""
    print(f"{result['errors']:,} errors, {result['warnings']:,} warnings{left}")
    if "saved" in result:
        actions = Counter(repaired["action"] for repaired in result["repairs"])
        num_left_out = actions.pop(LEFT_OUT, 0)
        texts = [f"{actions.total():,} annotations repaired"]
        texts += [f"{num_left_out:,} broken left out"] if num_left_out else []
        say(f"wrote {result['saved']['out']}: {', '.join(texts)}")


def _print_repairs(repairs: list[dict[str, Any]], max_repairs: int) -> None:
    """Print what was left out, and then what was repaired; a limited number of each."""
    for is_left_out in (True, False):
        chosen = [
            repaired for repaired in repairs if (repaired["action"] == LEFT_OUT) == is_left_out
        ]
        for repaired in chosen[:max_repairs]:
            place = repaired["file"]
            if repaired["annotation_id"] is not None:
                place += f", annotation {repaired['annotation_id']}"
            print(f"{repaired['action']}: {place}: {repaired['message']}")
        if len(chosen) > max_repairs:
            what = "entries left out" if is_left_out else "repairs"
            print(f"  ... and {len(chosen) - max_repairs:,} more {what} (--all lists them)")
