"""Small files of every kind that boxmend writes and reads again, for `flip_bits.py`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.fixes import table as fixes_table
from boxmend.auditing.fixes import verdicts
from boxmend.bench.audit import suite
from boxmend.bench.grids import jobs, noisy_data, results
from boxmend.data.dataset import Dataset
from boxmend.data.files.digests import add_json_digest
from boxmend.data.folds import manifest
from boxmend.data.formats import load
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import NoiseSettings, disturb, read_truth, write_noisy
from boxmend.repair import patches
from boxmend.repair.importing import tasks
from boxmend.runs.folder import Run, create, open_run
from boxmend.runs.ledger import COLUMNS, Entries, Ledger
from boxmend.runs.ledger import read as read_ledger

SHA256 = "0123456789abcdef" * 4


@dataclass(frozen=True)
class Sample:
    """A file to damage and the function that reads it."""

    path: Path
    read: Callable[[], Any]


def dataset_in(folder: Path) -> Dataset:
    """Write and load a COCO file with 2 images and 6 annotations."""
    document = {
        "images": [{"id": k, "file_name": f"{k}.png", "width": 99, "height": 99} for k in (1, 2)],
        "annotations": [
            {
                "id": 10 + k,
                "image_id": 1 + k % 2,
                "category_id": 1 + k % 3,
                "bbox": [10 * k, 5, 20, 20],
                "iscrowd": 0,
            }
            for k in range(6)
        ],
        "categories": [{"id": 1 + k, "name": f"class {k}"} for k in range(3)],
    }
    path = folder / "instances_train.json"
    path.write_text(json.dumps(document))
    return load(str(path))


def fixes_file(folder: Path) -> Sample:
    """Write a table of fixes."""
    dataset, path = dataset_in(folder), folder / fixes_table.FIXES_FILE
    rows = np.array([0, 3, 4])
    fixes = fixes_table.Fixes(
        ids=["f0", "f1", "f2"],
        kinds=np.array([0, 1, 3], np.int8),
        rows=rows,
        image_rows=dataset.image_rows[rows],
        old_labels=dataset.labels[rows],
        new_labels=np.array([2, 0, -1]),
        old_boxes=dataset.boxes[rows],
        new_boxes=np.array([dataset.boxes[0], dataset.boxes[3] + 2.5, [np.nan] * 4]),
        kept_rows=np.full(3, -1),
        p_wrong=np.array([0.9, 0.8, 0.7]),
        p_fix=np.array([0.85, 0.75, 0.65]),
        iou_gain=np.array([np.nan, 0.2, np.nan]),
        reasons=["seen as class 2", "lies elsewhere", "nothing there"],
    )
    fixes_table.write_fixes(path, dataset, fixes, SHA256)
    return Sample(path, lambda: fixes_table.read_fixes(path, dataset, SHA256))


def _write_noisy(folder: Path) -> Path:
    settings = NoiseSettings("symmetric:0.5", "uniform:0.2", 0.2, 0.2, seed=1)
    noisy = disturb(dataset_in(folder), settings)
    write_noisy(noisy, settings, folder / "noisy", WriteOptions(images_as="none"))
    return folder / "noisy"


def truth_file(folder: Path) -> Sample:
    """Write the truth of a noisy dataset."""
    path = _write_noisy(folder) / "truth.parquet"
    return Sample(path, lambda: read_truth(path))


def noise_record(folder: Path) -> Sample:
    """Write noise.json of a noisy dataset, from which a grid reads addresses."""
    place = _write_noisy(folder)
    return Sample(place / "noise.json", lambda: noisy_data.addresses_in(place))


def ledger_part(folder: Path) -> Sample:
    """Write one part of a ledger."""
    rng, n = np.random.default_rng(0), 40
    boxes = [rng.uniform(0, 99, (n, 4)).astype(np.float32) for _ in range(3)]
    ledger = Ledger.create(folder)
    ledger.append(
        Entries(
            epochs=np.arange(n) // 20,
            steps=np.arange(n),
            annotation_ids=rng.integers(0, 99, n),
            image_ids=rng.integers(0, 9, n),
            losses=rng.random(n, np.float32),
            thresholds=np.full(n, 0.5, np.float32),
            verdicts=rng.integers(0, 4, n).astype(np.int8),
            num_candidates=rng.integers(0, 9, n),
            old_labels=rng.integers(0, 3, n),
            new_labels=rng.integers(0, 3, n),
            confidences=rng.random(n, np.float32),
            noisy_boxes=boxes[0],
            matched_boxes=boxes[1],
            final_boxes=boxes[2],
            is_kept=rng.random(n) < 0.5,
        )
    )
    ledger.flush()
    return Sample(folder / "ledger" / "part-000000.parquet", lambda: read_ledger(folder, COLUMNS))


def patch_file(folder: Path) -> Sample:
    """Write patch.json of a repaired dataset."""
    path = folder / "patch.json"
    before, after = b'{"a": 1}\n{"b": 2}\n' * 20, b'{"a": 1}\n{"b": 3}\n' * 20
    made = {
        "labels/a.txt": patches.make_patch(b"0 1 2 3 4\n", b"1 1 2 3 4\n"),
        "labels/new.txt": patches.make_patch(None, b"2 1 2 3 4\n"),
        "instances.json": patches.make_patch(before, after),
        "gone.json": patches.make_patch(before, None),
    }
    path.write_bytes(patches.encode(made))
    return Sample(path, lambda: patches.read_patches(path))


def _make_run(folder: Path) -> Run:
    facts = {"data": {"sha256": SHA256, "images": 7}, "addresses": ["/data/voc:train"], "seed": 3}
    return create(folder / "run", {"method": "mend", "warm_up": 0.25}, facts)


def run_file(folder: Path) -> Sample:
    """Write run.json."""
    path = _make_run(folder).path
    return Sample(path / "run.json", lambda: open_run(path).facts())


def finished_file(folder: Path) -> Sample:
    """Write the marker of a finished run, with its summary."""
    run = _make_run(folder)
    run.finish({"steps": 120, "ledger_rows": 4711, "noise": {"label_noise": 0.21}})
    return Sample(run.path / "finished", run.summary)


def document_file(name: str) -> Callable[[Path], Sample]:
    """Return a function that writes a document of a run with this name."""

    def make(folder: Path) -> Sample:
        run = _make_run(folder)
        run.write_json(name, {"AP50": 0.625, "by_label": {"cat": 0.5}, "sha256": SHA256})
        return Sample(run.path / name, lambda: run.read_json(name))

    return make


def metrics_file(folder: Path) -> Sample:
    """Write three lines of metrics."""
    run = _make_run(folder)
    for step in range(3):
        run.append_metrics({"step": step, "loss": 1 / (step + 1), "note": "J*"})
    return Sample(run.path / "metrics.jsonl", run.read_metrics)


def verdicts_file(folder: Path) -> Sample:
    """Write four verdicts."""
    box = (1.0, 2.0, 30.0, 40.5)
    verdicts.append_verdicts(
        folder,
        [
            verdicts.Verdict("f0", "accept", mode="sample"),
            verdicts.Verdict("J*", "accept", label="class J", box=box, who="J", when="2026-01-01"),
            verdicts.Verdict("f2", "reject"),
        ],
    )
    verdicts.append_verdicts(folder, [verdicts.Verdict("f2", "undo")])
    return Sample(folder / verdicts.VERDICTS_FILE, lambda: verdicts.read_verdicts(folder))


def _make_result(seed: int) -> results.Result:
    return results.Result(
        cell=f"label40-box40-mend-{seed}",
        scale="voc320",
        noise=results.Noise("symmetric:0.4", "uniform:0.4", seed),
        method="mend",
        seed=seed,
        settings={"method": "mend", "epochs": 12},
        data=results.Data(SHA256, SHA256, SHA256),
        versions={"boxmend": "0.1.0"},
        hardware="J*",
        started="2026-01-01T00:00:00+00:00",
        seconds=60.5,
        scores={"voc_ap50_area": 0.5625},
    )


def results_file(folder: Path) -> Sample:
    """Write three lines of results."""
    path = folder / results.RESULTS_FILE
    for seed in range(3):
        results.append_result(path, _make_result(seed))
    return Sample(path, lambda: results.read_results(path))


def result_file(folder: Path) -> Sample:
    """Write the result of a cell."""
    jobs.write_json(folder / jobs.RESULT_FILE, _make_result(0))
    return Sample(folder / jobs.RESULT_FILE, lambda: jobs.read_result(folder))


def tries_file(folder: Path) -> Sample:
    """Write the number of attempts of a cell."""
    jobs.write_json(folder / jobs.TRIES_FILE, jobs.Tries(3, 61.25))
    return Sample(folder / jobs.TRIES_FILE, lambda: jobs.read_tries(folder))


def cell_file(folder: Path) -> Sample:
    """Write the job of a cell."""
    job = jobs.Job(
        cell="label40-box40-mend-0",
        scale="voc320",
        labels="symmetric:0.4",
        boxes="uniform:0.4",
        noise_seed=0,
        noise_folder="label40-box40-0",
        method="mend",
        variant={},
        seed=0,
        settings={"method": "mend", "epochs": 12},
        known_rates="none",
        train=["/data/voc:train"],
        val=["/data/voc:val"],
        train_sha256=SHA256,
        val_sha256=SHA256,
    )
    jobs.save_job(folder, job)
    return Sample(folder / jobs.JOB_FILE, lambda: jobs.read_job(folder))


def suite_cell_file(folder: Path) -> Sample:
    """Write a cell of the audit suite."""
    identity, settings = {"data_sha256": SHA256}, {"labels": "pair:0.1", "seed": 0}
    path = folder / "pair-10-0.json"
    cell = {"regime": "pair-10", "settings": settings, "identity": identity, "called_wrong": 0.125}
    suite.write_cell(path, cell)
    return Sample(path, lambda: suite.read_cell(path, identity, settings))


def folds_file(folder: Path) -> Sample:
    """Write the manifest of folds."""
    dataset, path = dataset_in(folder), folder / manifest.FOLDS_FILE
    path.write_bytes(manifest.encode_manifest({"1.png": 0, "2.png": 1}, 2, 0, None, SHA256))
    return Sample(path, lambda: manifest.read_manifest(folder, dataset))


def export_file(folder: Path) -> Sample:
    """Write the manifest of an export, from which verdicts are imported."""
    path, regions = folder / tasks.MANIFEST_FILE, [{"region": "r0", "fixes": ["f0"]}]
    document = {
        "boxmend_export": tasks.MANIFEST_VERSION,
        "to": "cvat",
        "data_sha256": SHA256,
        "images": [{"file_name": "1.png", "annotations": regions}],
    }
    path.write_bytes(add_json_digest(json.dumps(document).encode()))
    return Sample(path, lambda: tasks.read_manifest(folder / "x.xml", path, "cvat"))


def checkpoint_file(folder: Path) -> Sample:
    """Write a checkpoint of a small network."""
    import torch

    from boxmend.training import checkpoint

    network = torch.nn.Linear(5, 3)
    weights = dict(network.state_dict())
    state: dict[str, Any] = dict.fromkeys(checkpoint.PARTS, 7)
    state |= {"network": weights, "average": weights, "method": {"queue": torch.arange(9.0)}}
    checkpoint.save(folder, state)
    device = torch.device("cpu")
    return Sample(
        folder / checkpoint.FILE, lambda: checkpoint.load(folder, device, network, ["queue"])
    )


def model_file(folder: Path) -> Sample:
    """Write a small model."""
    import torch
    from safetensors.torch import save as to_bytes

    from boxmend.data.files.digests import write_safetensors_with_digest
    from boxmend.detector.weights import read_file

    path = folder / "model.safetensors"
    tensors = {"backbone.a": torch.arange(40.0).reshape(8, 5), "roi_heads.b": torch.zeros(3)}
    metadata = {"detector": "tiny", "label_names": '["cat", "dog"]', "image_size": "320"}
    with path.open("wb") as file:
        write_safetensors_with_digest(to_bytes(tensors, metadata), file)
    return Sample(path, lambda: read_file(path))


KINDS: dict[str, Callable[[Path], Sample]] = {
    "fixes.parquet": fixes_file,
    "truth.parquet": truth_file,
    "noise.json": noise_record,
    "ledger part": ledger_part,
    "patch.json": patch_file,
    "run.json": run_file,
    "finished": finished_file,
    "evaluation.json": document_file("evaluation.json"),
    "mending.json": document_file("mending.json"),
    "audit.json": document_file("audit.json"),
    "metrics.jsonl": metrics_file,
    "verdicts.jsonl": verdicts_file,
    "results.jsonl": results_file,
    "result.json": result_file,
    "tries.json": tries_file,
    "cell.json": cell_file,
    "suite cell": suite_cell_file,
    "folds.json": folds_file,
    "export.json": export_file,
    "checkpoint.pt": checkpoint_file,
    "model.safetensors": model_file,
}
