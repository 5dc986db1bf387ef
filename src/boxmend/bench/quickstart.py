"""The quickstart: draw a dataset with errors and simulated predictions, audit it and repair it.

Nothing is trained, and PyTorch is not needed: the predictions are drawn around the true objects,
with the errors that detectors make. The steps are those of the commands `check`, `audit`, `apply`
and `report`, and each writes the same files as its command.

    OUT/quickstart.json   identifies the folder; steps whose results exist are not repeated
    OUT/clean             the dataset without errors
    OUT/data              the dataset with planted errors, and the truth
    OUT/predictions.json  the simulated detections
    OUT/audit             the audit and its report
    OUT/mended            the repaired dataset
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.audit import AuditSettings
from boxmend.auditing.fixes.choosing import DEFAULT_PRECISION, choose_fixes
from boxmend.auditing.fixes.run_fixes import AUDIT_FILE, read_run_fixes
from boxmend.auditing.folders import audit_predictions
from boxmend.data.checks import check
from boxmend.data.dataset import Dataset
from boxmend.data.files.atomic import open_atomic, wrap_os_errors
from boxmend.data.files.json_text import encode_json, encode_json_by_line
from boxmend.data.files.reading import open_file
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.files.temporary import remove_leftovers
from boxmend.data.findings import Severity
from boxmend.data.formats import load
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import TRUTH_FILE, NoiseSettings, disturb, write_noisy
from boxmend.data.progress import Progress
from boxmend.data.synth import synthesize
from boxmend.data.synth.detections import LOOK_ALIKES, simulate_detections
from boxmend.errors import OutputError, UsageError
from boxmend.repair.apply import ApplySettings, apply
from boxmend.runs.folder import open_run
from boxmend.scoring.repairs import RepairCounts, count_repairs
from boxmend.scoring.truth import known_truth
from boxmend.web.report.writing import ReportSettings, write_report

SEED = 0
NUM_IMAGES = 400  # by default; enough for the audit to be sure of most errors
MIN_IMAGES = 10  # with fewer, some kinds of errors do not occur
SIZE = 160  # pixels; width and height of an image
NOISE = NoiseSettings(
    labels="symmetric:0.02",
    look_alikes=0.06,
    look_alike_pairs=tuple("/".join(pair) for pair in LOOK_ALIKES),
    boxes="uniform:0.2",
    missing=0.06,
    spurious=0.03,
    duplicate=0.03,
    seed=SEED,
)
MARKER_FILE = "quickstart.json"


@dataclass(frozen=True)
class Quickstart:
    """A quickstart: its folder with all files and folders below it, and its number of images."""

    out: Path
    num_images: int

    @property
    def clean(self) -> Path:
        """The dataset without errors."""
        return self.out / "clean" / "data.yaml"

    @property
    def data(self) -> Path:
        """The dataset with planted errors."""
        return self.out / "data" / "data.yaml"

    @property
    def truth(self) -> Path:
        """The truth about this dataset."""
        return self.out / "data" / TRUTH_FILE

    @property
    def predictions(self) -> Path:
        """The simulated detections."""
        return self.out / "predictions.json"

    @property
    def audit(self) -> Path:
        """The folder of the audit."""
        return self.out / "audit"

    @property
    def mended(self) -> Path:
        """The folder of the repaired dataset."""
        return self.out / "mended"


@dataclass(frozen=True, eq=False)
class AuditSummary:
    """What the audit estimates, and how its fixes compare with the truth."""

    rates: dict[str, dict[str, float]]  # by kind of error: value, low and high
    num_fixes: int
    num_applied: int  # at DEFAULT_PRECISION
    repairs: dict[str, RepairCounts]  # by kind of error and in all


def start_quickstart(out: Path, num_images: int = NUM_IMAGES) -> Quickstart:
    """Make the folder of a quickstart, or continue one with the same settings.

    Raise an OutputError for a folder with anything else.
    """
    if num_images < MIN_IMAGES:
        raise UsageError(f"images is {num_images}; expected {MIN_IMAGES} or more")
    path, record = out / MARKER_FILE, _make_record(num_images)
    try:
        with open_file(path) as file:
            existing = file.read(4096)
    except (FileNotFoundError, NotADirectoryError):
        remove_leftovers(out)  # of a quickstart that was killed before it wrote its record
        ensure_vacant(out)
        with wrap_os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:
            file.write(record)
        return Quickstart(out, num_images)
    except OSError as error:
        raise OutputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if existing != record:
        raise OutputError(
            f"{out}: holds a quickstart with other settings, or of another version of boxmend; "
            "remove the folder, or name a new one with --out"
        )
    return Quickstart(out, num_images)


def draw_inputs(plan: Quickstart, progress: Progress | None = None) -> Dataset:
    """Draw the dataset, plant errors and simulate detections; return the dataset with errors."""
    if not os.path.lexists(plan.clean.parent):
        synthesize(
            plan.clean.parent,
            images=plan.num_images,
            seed=SEED,
            size=SIZE,
            format="yolo",
            progress=progress,
        )
    if not os.path.lexists(plan.data.parent):
        noisy = disturb(load(plan.clean), NOISE)
        write_noisy(noisy, NOISE, plan.data.parent, WriteOptions())
    dataset = load(plan.data)
    if not os.path.lexists(plan.predictions):
        with open_atomic(plan.predictions) as file:
            file.write(encode_json_by_line(_simulate_results(dataset)))
    return dataset


def count_findings(dataset: Dataset, progress: Progress | None = None) -> tuple[int, int]:
    """Return the number of errors and warnings that `boxmend check` finds."""
    severities = [finding.severity for finding in check(dataset, progress=progress)]
    return severities.count(Severity.ERROR), severities.count(Severity.WARNING)


def audit_inputs(plan: Quickstart, dataset: Dataset) -> AuditSummary:
    """Audit the dataset by the detections, and compare the fixes with the truth."""
    if not os.path.lexists(plan.audit):
        settings = AuditSettings(unseen=True)
        audit_predictions(dataset, [str(plan.data)], [plan.predictions], plan.audit, settings)
    run = open_run(plan.audit)
    fixes = read_run_fixes(run, dataset)
    is_applied = np.zeros(len(fixes), np.bool_)
    is_applied[choose_fixes(fixes, {}, DEFAULT_PRECISION).rows] = True
    recorded = run.read_json(AUDIT_FILE) or {}
    return AuditSummary(
        rates=recorded.get("rates", {}),
        num_fixes=len(fixes),
        num_applied=int(is_applied.sum()),
        repairs=count_repairs(dataset, fixes, is_applied, known_truth(plan.truth, dataset)),
    )


def apply_fixes(plan: Quickstart) -> None:
    """Write the dataset with the fixes that reach the default precision."""
    if not os.path.lexists(plan.mended):
        apply(plan.audit, plan.mended, ApplySettings(precision=DEFAULT_PRECISION))


def write_audit_report(plan: Quickstart, progress: Progress | None = None) -> Path:
    """Write the report of the audit, compared with the truth; return its page."""
    settings = ReportSettings(truth=plan.truth)
    return write_report(plan.audit, settings=settings, progress=progress).path


def _make_record(num_images: int) -> bytes:
    """Return the content of the file that identifies the folder of a quickstart."""
    settings = {"images": num_images, "size": SIZE, "noise": NOISE.to_json()}
    return encode_json({"made_by": "boxmend quickstart", **settings}, indent=2) + b"\n"


def _simulate_results(dataset: Dataset) -> list[dict[str, Any]]:
    """Return simulated detections in the images of a dataset as COCO results."""
    names = dataset.images.file_names
    scenes = [int(Path(name).stem) - 1 for name in names]  # 000001.png is scene 0
    detections = simulate_detections(SEED, scenes, SIZE)
    columns = (
        detections.image_rows.tolist(),
        detections.labels.tolist(),
        detections.scores.tolist(),
        detections.boxes.tolist(),
    )
    return [
        {
            "image_id": Path(names[row]).stem,
            "file_name": names[row],
            "category_id": label + 1,
            "category_name": dataset.label_names[label],
            "bbox": [round(side, 2) for side in (x1, y1, x2 - x1, y2 - y1)],
            "score": score,
        }
        for row, label, score, (x1, y1, x2, y2) in zip(*columns, strict=True)
    ]
