"""`boxmend quickstart`: the audit of a drawn dataset, step by step."""

import textwrap
import time
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.auditing.fixes.choosing import DEFAULT_PRECISION
from boxmend.bench import quickstart as steps
from boxmend.bench.quickstart import AuditSummary, Quickstart
from boxmend.cli.audit import RATES, format_share
from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, progress
from boxmend.errors import ExitStatus
from boxmend.repair.apply import CHANGES_FILE
from boxmend.scoring.fixes import IN_ALL

WIDTH = 80  # columns of the explanations
NEXT_COMMANDS = """
  boxmend check data.yaml
  boxmend audit data.yaml --predictions predictions.json --out audit
  boxmend report audit
  boxmend review audit
  boxmend apply audit --precision 0.95 --out mended
"""

app = App(name="quickstart")


@app.default
def quickstart(
    *,
    out: Annotated[
        Path, Parameter(help="Folder to write to; new, empty, or of an earlier quickstart.")
    ] = Path("quickstart"),
    images: Annotated[
        int, Parameter(help="Number of images to draw; with fewer, the audit is less sure.")
    ] = steps.NUM_IMAGES,
    json: Json = False,
) -> int:
    """Audit and repair a small drawn dataset, and explain every step: about half a minute.

    boxmend draws images, plants errors in their annotations, and simulates the detections of a
    detector: no detector runs, and PyTorch is not needed. Then it checks, audits and repairs the
    dataset, writes the report, and compares the result with the truth. Everything is always drawn
    the same. If the folder holds an earlier quickstart, its results are used again.

    Example: boxmend quickstart --out quickstart
    """
    started = time.monotonic()
    plan = steps.start_quickstart(out, images)
    with progress("drawing", quiet=json) as update:
        dataset = steps.draw_inputs(plan, progress=update)
    if not json:
        _print_inputs(plan, len(dataset.images), len(dataset))
    with progress("opening images", quiet=json) as update:
        errors, warnings = steps.count_findings(dataset, update)
    if not json:
        _print_check(plan, errors, warnings)
    audited = steps.audit_inputs(plan, dataset)
    if not json:
        _print_audit(plan, audited)
    steps.apply_fixes(plan)
    if not json:
        _print_apply(plan, audited)
    with progress("making pictures of fixes", quiet=json) as update:
        page = steps.write_audit_report(plan, update)
    seconds = time.monotonic() - started
    if json:
        facts = {"images": len(dataset.images), "annotations": len(dataset)}
        findings = {"errors": errors, "warnings": warnings}
        print_json({"out": str(out), **facts, **findings, **_as_json(audited), "report": str(page)})
    else:
        _print_report(plan, page, seconds)
    return ExitStatus.FINE


def _as_json(audited: AuditSummary) -> dict[str, Any]:
    return {
        "rates": audited.rates,
        "fixes": audited.num_fixes,
        "applied": audited.num_applied,
        "precision": DEFAULT_PRECISION,
        "repairs": {kind: counts.to_json() for kind, counts in audited.repairs.items()},
    }


def _print_inputs(plan: Quickstart, num_images: int, num_annotations: int) -> None:
    _explain(
        f"{plan.data}: a YOLO dataset of {num_images} drawn images and {num_annotations:,} "
        "annotations with planted errors: wrong labels, inaccurate boxes, and missing, spurious "
        "and duplicate annotations."
    )
    _explain(
        f"{plan.predictions}: simulated detections in these images. No detector made them: they "
        "are drawn around the true objects, with the errors that detectors make."
    )


def _print_check(plan: Quickstart, errors: int, warnings: int) -> None:
    _print_command(1, "check", plan.data)
    _explain(
        f"{errors} errors, {warnings} warnings. This command validates files, images and boxes. It "
        "cannot see that a label is wrong or that an object has no annotation: this takes a "
        "detector."
    )


def _print_audit(plan: Quickstart, audited: AuditSummary) -> None:
    options = ("--predictions", plan.predictions, "--unseen", "--out", plan.audit)
    _print_command(2, "audit", plan.data, *options)
    _explain(
        "The audit compares the annotations with the detections and proposes "
        f"{audited.num_fixes:,} fixes, each with a probability. It also estimates how many errors "
        "there are, without knowing them:"
    )
    print_table(
        ("estimated", "share (95 % interval)"),
        [(RATES[name], format_share(share)) for name, share in audited.rates.items()],
    )
    print()
    _explain(
        "--unseen confirms that the detector was not trained on these images. A detector repeats "
        "the errors that it was trained on, so its predictions would hide them."
    )


def _print_apply(plan: Quickstart, audited: AuditSummary) -> None:
    options = ("--precision", str(DEFAULT_PRECISION), "--out", plan.mended)
    _print_command(3, "apply", plan.audit, *options)
    taken = (
        f"This applies {audited.num_applied:,} fixes, of which {100 * DEFAULT_PRECISION:.0f} % or "
        "more are expected to be right"
        if audited.num_applied
        else "No fix reaches this precision, so this applies none"
    )
    _explain(
        f"{taken}, and leaves the rest of your files as it is. {plan.mended / CHANGES_FILE} lists "
        "every change with its reason. The errors are planted, so the result can be compared with "
        "the truth:"
    )
    print_table(
        ("kind", "planted", "found", "repaired", "wrong fixes"),
        [
            (kind, counts.errors, counts.found, counts.repaired, counts.wrong)
            for kind, counts in audited.repairs.items()
        ],
    )
    print()
    total = audited.repairs[IN_ALL]
    share = 100 * total.repaired / max(total.errors, 1)
    _explain(
        f"{total.repaired:,} of {total.errors:,} errors ({share:.0f} %) are repaired. Found are "
        "those that the audit calls more likely wrong than not. People can decide on the fixes "
        "that were not applied, on the page of boxmend review."
    )


def _print_report(plan: Quickstart, page: Path, seconds: float) -> None:
    _print_command(4, "report", plan.audit, "--truth", plan.truth)
    _explain(
        f"{page} shows what the audit found, with a picture of every fix: open it in a browser. "
        "--truth is only for data whose errors are known."
    )
    _explain(f"All this took {seconds:.0f} seconds.")
    _explain(
        "Now with your own data. You need the predictions of a detector that was not trained on "
        "these images; `boxmend folds --help` says how to get them. Without a detector, start "
        "with `boxmend train`."
    )
    print(NEXT_COMMANDS.strip("\n"), end="\n\n")
    _explain(
        "In place of data.yaml, a COCO .json or a VOC folder works as well. `boxmend audit --help` "
        "lists the files of predictions that it reads. `boxmend review` needs: pip install "
        "'boxmend[review]'"
    )


def _print_command(number: int, *words: str | Path) -> None:
    print(f"{number}. boxmend {' '.join(quote(str(word)) for word in words)}", end="\n\n")


def _explain(text: str) -> None:
    """Print a paragraph and an empty line; paths are never broken."""
    wrapped = textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    print(wrapped, end="\n\n")
