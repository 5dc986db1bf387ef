"""What a cell leaves for the tables: its line of results, whether it was finished or failed."""

import hashlib
import os
import platform
from collections.abc import Mapping
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
from boxmend.bench.grids.results import RESULTS_FILE, Data, Noise, Result, append
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
ESTIMATED = ("label_noise", "box_noise")


def record(folder: Path, result: Result) -> None:
    """Add a result to the grid's file, and then to the cell's folder, which marks it as over."""
    append(folder.parent.parent / RESULTS_FILE, result)
    write_json(folder / RESULT_FILE, result)


def finished_result(
    folder: Path, job: Job, tries: Tries, started: str, scored: Mapping[str, Any]
) -> Result:
    """Put together the result of a cell that came to its end."""
    run = Run(folder / RUN_FOLDER)
    evaluation: Evaluation = scored["evaluation"]
    return _result(
        *(folder, job, tries, started),
        settings=named_weights(own_settings(run.settings(), _trained(job)), job),
        images_per_second=_speed(run),
        scores={
            **{name: evaluation.figures.get(name) for name in VOC_FIGURES},
            **{ours: evaluation.figures.get(name) for name, ours in COCO_FIGURES.items()},
        },
        scores_by_label={
            name: {"voc_ap50_area": one["voc_ap50_area"], "coco_ap": one["AP"]}
            for name, one in evaluation.by_label.items()
        },
        mending=scored["mending"],
        estimates=_estimates(run.summary()),
    )


def failed_result(folder: Path, job: Job, tries: Tries, started: str, error: str) -> Result:
    """Put together the result of a cell that failed."""
    settings = named_weights(own_settings(job.settings, _trained(job)), job)
    return _result(folder, job, tries, started, settings=settings, scores={}, error=error)


def _result(folder: Path, job: Job, tries: Tries, started: str, **found: Any) -> Result:
    facts = _facts(folder)
    return Result(
        cell=job.cell,
        scale=job.scale,
        noise=Noise(job.labels, job.boxes, job.noise_seed, job.presence),
        method=job.method,
        variant=job.variant,
        seed=job.seed,
        data=Data(
            job.train_sha256,
            _noisy_hash(folder, job, facts),
            job.val_sha256,
            {"train": job.train, "val": job.val},
        ),
        versions=facts.get("versions") or _versions(),
        code=source_hash(),
        hardware=str(facts.get("hardware") or platform.processor() or platform.machine()),
        started=started,
        seconds=round(tries.seconds, 1),
        attempt=max(tries.number, 1),
        **found,
    )


def _noisy_hash(folder: Path, job: Job, facts: Mapping[str, Any]) -> str:
    """The hash of the noisy data, by which cells of one noise are known to share them.

    That of clean data stands where the cell came to nothing before there were any. A cell of two
    stages has that of the first, whatever it was mended to.
    """
    if job.needs is not None:
        before = read_result(folder.parent / job.needs)
        return job.train_sha256 if before is None else before.data.noisy_sha256
    found: str = facts.get("data", {}).get("sha256", job.train_sha256)
    return found


def _trained(job: Job) -> str:
    """The method of the training, which is not that of a cell of two stages."""
    return str(job.settings["method"])


def named_weights(settings: dict[str, Any], job: Job) -> dict[str, Any]:
    """The settings with weights known by what they are, not by where they lie."""
    if job.weights_sha256 is None:
        return settings
    return settings | {"weights": f"{settings['weights']} sha256:{job.weights_sha256[:16]}"}


def _facts(folder: Path) -> dict[str, Any]:
    """What the run was made on; nothing where it was not begun."""
    try:
        return Run(folder / RUN_FOLDER).facts()
    except BoxmendError:
        return {}


def source_hash(package: Path = Path(boxmend.__file__).parent) -> str:
    """Give twelve digits that change with any line of a package, and with nothing else of it."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        lines = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(package).as_posix()}\0{len(lines)}\0".encode() + lines)
    return digest.hexdigest()[:12]


def _versions() -> dict[str, str]:
    found = {"boxmend": __version__, "python": platform.python_version()}
    for package in ("torch", "torchvision", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _speed(run: Run) -> float | None:
    """Images a second by the last line that tells."""
    told = [line["images_per_second"] for line in run.metrics() if line.get("images_per_second")]
    return float(told[-1]) if told else None


def _estimates(summary: Mapping[str, Any]) -> dict[str, float | None] | None:
    noise = summary.get("noise") or {}
    names = [f"{name}{end}" for name in ESTIMATED for end in ("", "_low", "_high")]
    found = {name: noise[name] for name in names if name in noise}
    return found or None


def last_lines(path: Path, number: int = 5, most: int = 4096) -> str:
    """Give the last lines of a log; nothing where there is none."""
    try:
        with open_file(path) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - most, 0))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-number:])
