"""`boxmend quickstart`: the audit of a drawn dataset, step by step."""

import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.auditing.fixes.choosing import DEFAULT_PRECISION
from boxmend.bench import quickstart as steps
from boxmend.bench.quickstart import AuditSummary, QuickstartPaths
from boxmend.cli.audit import RATES
from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, progress
from boxmend.errors import ExitStatus
from boxmend.scoring.fixes import IN_ALL

NEXT = """\
Now with your own data. You need the predictions of a detector that was not trained on these images
(`boxmend folds --help` tells how to get them; without a detector, start with `boxmend train`):

  boxmend check data.yaml
  boxmend audit data.yaml --predictions predictions.json --out audit
  boxmend report audit
  boxmend review audit
  boxmend apply audit --precision 0.95 --out mended

data.yaml may also be a COCO .json or a VOC folder; `boxmend audit --help` lists the predictions
that it reads. `boxmend review` needs: pip install 'boxmend[review]'"""

app = App(name="quickstart")


@app.default
def quickstart(
    *,
    out: Annotated[
        Path, Parameter(help="Folder to write to; new, empty, or of an earlier quickstart.")
    ] = Path("quickstart"),
    json: Json = False,
) -> int:
    """Audit and repair a small drawn dataset, and explain every step: about half a minute.

    boxmend draws 400 images, plants errors in their annotations, and simulates the detections of a
    detector: no detector runs, and PyTorch is not needed. Then it checks, audits and repairs the
    dataset, writes the report, and compares the result with the truth. Everything is always drawn
    the same. If the folder holds an earlier quickstart, its results are used again.

    Example: boxmend quickstart --out quickstart
    """
    started = time.monotonic()
    paths = steps.start_quickstart(out)
    with progress("drawing", quiet=json) as update:
        dataset = steps.draw_inputs(paths, progress=update)
    if not json:
        _print_inputs(paths, len(dataset.images), len(dataset))
    with progress("opening images", quiet=json) as update:
        errors, warnings = steps.count_findings(dataset, update)
    if not json:
        _print_check(paths, errors, warnings)
    audited = steps.audit_inputs(paths, dataset)
    if not json:
        _print_audit(paths, audited)
    steps.apply_fixes(paths)
    if not json:
        _print_apply(paths, audited)
    with progress("making pictures of fixes", quiet=json) as update:
        page = steps.write_audit_report(paths, update)
    seconds = time.monotonic() - started
    if json:
        facts = {"images": len(dataset.images), "annotations": len(dataset)}
        findings = {"errors": errors, "warnings": warnings}
        print_json({"out": str(out), **facts, **findings, **_as_json(audited), "report": str(page)})
    else:
        _print_report(paths, page, seconds)
    return ExitStatus.FINE


def _as_json(audited: AuditSummary) -> dict[str, Any]:
    return {
        "rates": audited.rates,
        "fixes": audited.num_fixes,
        "applied": audited.num_applied,
        "precision": DEFAULT_PRECISION,
        "repairs": {kind: counts.to_json() for kind, counts in audited.repairs.items()},
    }


def _print_step(number: int, words: Sequence[str | Path], meaning: str) -> None:
    print(f"\n{number}. boxmend {' '.join(quote(str(word)) for word in words)}\n")
    print(meaning)


def _print_inputs(paths: QuickstartPaths, num_images: int, num_annotations: int) -> None:
    print(
        f"{paths.data}: a YOLO dataset of {num_images} drawn images and {num_annotations:,} "
        "annotations,\nwith planted errors: wrong labels, inaccurate boxes, missing, spurious and "
        f"duplicate ones.\n{paths.predictions}: simulated detections in these images. No detector "
        "made them:\nthey are drawn around the true objects, with the errors that detectors make."
    )


def _print_check(paths: QuickstartPaths, errors: int, warnings: int) -> None:
    _print_step(
        1,
        ["check", paths.data],
        f"{errors} errors, {warnings} warnings. `check` validates files, images and boxes. It "
        "cannot see that a\nlabel is wrong or that an object has no annotation: this takes a "
        "detector.",
    )


def _print_audit(paths: QuickstartPaths, audited: AuditSummary) -> None:
    _print_step(
        2,
        ["audit", paths.data, "--predictions", paths.predictions]
        + ["--unseen", "--out", paths.audit],
        f"The audit compares the annotations with the detections and proposes "
        f"{audited.num_fixes:,} fixes, each with a\nprobability. It also estimates how many errors "
        "there are, without knowing them:\n",
    )
    print_table(
        ("estimated", "share (95 % interval)"),
        [(RATES[name], _share_text(share)) for name, share in audited.rates.items()],
    )
    print(
        "\n--unseen confirms that the detector was not trained on these images. A detector repeats "
        "the errors\nthat it was trained on, so an audit with its predictions would miss them."
    )


def _print_apply(paths: QuickstartPaths, audited: AuditSummary) -> None:
    total = audited.repairs[IN_ALL]
    _print_step(
        3,
        ["apply", paths.audit, "--precision", str(DEFAULT_PRECISION), "--out", paths.mended],
        f"It applies the {audited.num_applied:,} fixes that are together expected to be "
        f"{100 * DEFAULT_PRECISION:.0f} % right, and changes nothing\nelse in your files. "
        f"{paths.mended / 'changes.csv'} lists every change with its reason. The errors\nare "
        "planted, so the result can be compared with the truth:\n",
    )
    print_table(
        ("kind", "planted", "found", "repaired", "wrong fixes"),
        [
            (kind, counts.errors, counts.found, counts.repaired, counts.wrong)
            for kind, counts in audited.repairs.items()
        ],
    )
    share = total.repaired / max(total.errors, 1)
    print(
        f"\n{total.repaired:,} of {total.errors:,} errors ({100 * share:.0f} %) are repaired. "
        "Found are those that the audit calls more likely\nwrong than not. A person can decide on "
        "the rest: `boxmend review`."
    )


def _print_report(paths: QuickstartPaths, page: Path, seconds: float) -> None:
    _print_step(
        4,
        ["report", paths.audit, "--truth", paths.truth],
        f"{page} shows what the audit found, with a picture of every fix. Open it\nin a browser. "
        "(--truth is only for data whose errors are known.)",
    )
    print(f"\nAll this took {seconds:.0f} seconds.\n\n{NEXT}")


def _share_text(share: dict[str, float]) -> str:
    value, low, high = (100 * share[name] for name in ("value", "low", "high"))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"
