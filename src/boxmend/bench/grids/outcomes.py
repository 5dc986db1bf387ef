"""The result of a cell, finished or failed, as a line for the tables."""

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boxmend
from boxmend import __version__
from boxmend.bench.grids.jobs import (
    RESULT_FILE,
    RUN_FOLDER,
    Job,
    Tries,
    own_settings,
    read_result,
    write_json,
)
from boxmend.bench.grids.results import RESULTS_FILE, Data, Noise, Result, append_result
from boxmend.data.files.reading import open_file
from boxmend.errors import BoxmendError
from boxmend.runs.folder import Run

if TYPE_CHECKING:
    from boxmend.training.evaluation import Evaluation

COCO_FIGURES = {
    "AP": "coco_ap",
    "AP50": "coco_ap50",
    "AP75": "coco_ap75",
    "AP_small": "coco_ap_small",
    "AP_medium": "coco_ap_medium",
    "AP_large": "coco_ap_large",
}
VOC_FIGURES = ("voc_ap50_area", "voc_ap50_11point")
PACKAGES = ("torch", "torchvision", "numpy")
ESTIMATED_RATES = ("label_noise", "box_noise")


def record_result(folder: Path, result: Result) -> None:
    """Append a result to the file of the grid, then write it into the folder of the cell.

    The file in the folder marks the cell as over.
    """
    append_result(folder.parent.parent / RESULTS_FILE, result)
    write_json(folder / RESULT_FILE, result)


def finished_result(
    folder: Path, job: Job, tries: Tries, started: str, scored: Mapping[str, Any]
) -> Result:
    """Build the result of a finished cell."""
    run = Run(folder / RUN_FOLDER)
    evaluation: Evaluation = scored["evaluation"]
    return _make_result(
        *(folder, job, tries, started),
        settings=hash_weights(own_settings(run.settings(), _get_trained_method(job)), job),
        images_per_second=_read_speed(run),
        scores=collect_scores(evaluation),
        scores_by_label={
            name: {"voc_ap50_area": scores["voc_ap50_area"], "coco_ap": scores["AP"]}
            for name, scores in evaluation.by_label.items()
        },
        mending=scored["mending"],
        estimates=collect_estimates(run.summary()),
    )


def failed_result(folder: Path, job: Job, tries: Tries, started: str, error: str) -> Result:
    """Build the result of a failed cell."""
    settings = hash_weights(own_settings(job.settings, _get_trained_method(job)), job)
    return _make_result(folder, job, tries, started, settings=settings, scores={}, error=error)


def _make_result(folder: Path, job: Job, tries: Tries, started: str, **fields: Any) -> Result:
    facts = _read_facts(folder)
    return Result(
        cell=job.cell,
        scale=job.scale,
        noise=Noise(job.labels, job.boxes, job.noise_seed, job.presence),
        method=job.method,
        variant=job.variant,
        seed=job.seed,
        data=Data(
            job.train_sha256,
            _get_noisy_hash(folder, job, facts),
            job.val_sha256,
            {"train": job.train, "val": job.val},
        ),
        versions=facts.get("versions") or collect_versions(),
        code=source_hash(),
        hardware=str(facts.get("hardware") or platform.processor() or platform.machine()),
        started=started,
        seconds=round(tries.seconds, 1),
        attempt=max(tries.number, 1),
        **fields,
    )


def _get_noisy_hash(folder: Path, job: Job, facts: Mapping[str, Any]) -> str:
    """Return the hash of the noisy data, which is equal for all cells of one noise.

    If the cell failed before there were noisy data, it is the hash of the clean data. A cell of two
    stages has the hash of its first stage.
    """
    if job.needs is not None:
        first = read_result(folder.parent / job.needs)
        return job.train_sha256 if first is None else first.data.noisy_sha256
    digest: str = facts.get("data", {}).get("sha256", job.train_sha256)
    return digest


def _get_trained_method(job: Job) -> str:
    """Return the method of the training; a cell of two stages has another name for its method."""
    return str(job.settings["method"])


def hash_weights(settings: dict[str, Any], job: Job) -> dict[str, Any]:
    """Return the settings with the hash of the weights beside the name of their file."""
    if job.weights_sha256 is None:
        return settings
    return settings | {"weights": f"{settings['weights']} sha256:{job.weights_sha256[:16]}"}


def _read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts of the run; {} if it was not started."""
    try:
        return Run(folder / RUN_FOLDER).facts()
    except BoxmendError:
        return {}


def source_hash(package: Path = Path(boxmend.__file__).parent) -> str:
    """Return twelve digits of a hash of the source lines of a package."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        lines = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(lines)}\0".encode() + lines)
    return digest.hexdigest()[:12]


def collect_versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of boxmend, Python and those packages that are installed."""
    versions = {"boxmend": __version__, "python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _read_speed(run: Run) -> float | None:
    """Return the last images per second in the metrics; None if there are none."""
    speeds = [
        line["images_per_second"] for line in run.read_metrics() if line.get("images_per_second")
    ]
    return float(speeds[-1]) if speeds else None


def collect_scores(evaluation: "Evaluation") -> dict[str, float | None]:
    """Return the scores of an evaluation by the names that they have in a result."""
    return {
        **{name: evaluation.figures.get(name) for name in VOC_FIGURES},
        **{name: evaluation.figures.get(coco) for coco, name in COCO_FIGURES.items()},
    }


def collect_estimates(summary: Mapping[str, Any]) -> dict[str, float | None] | None:
    """Return the estimated noise in the summary of a run, with its interval; None without one."""
    noise = summary.get("noise") or {}
    names = [f"{name}{end}" for name in ESTIMATED_RATES for end in ("", "_low", "_high")]
    estimates = {name: noise[name] for name in names if name in noise}
    return estimates or None


def last_lines(path: Path, number: int = 5, max_bytes: int = 4096) -> str:
    """Return the last lines of a log that are not blank; "" without a log."""
    try:
        with open_file(path) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - max_bytes, 0))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-number:])
