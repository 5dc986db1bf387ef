"""boxmend noise: the noisy dataset, its truth and its record."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import boxmend
from boxmend.cli import run
from boxmend.data.noise import join_digests
from tests.cli.cli_answers import answer, hashes


def test_noise_writes_the_dataset_the_truth_and_the_record(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = hashes(toys)
    out = tmp_path / "noisy"
    tokens = ["noise", f"{toys}:train", "--labels", "symmetric:0.4", "--boxes", "uniform:0.2"]
    tokens += ["--missing", "0.1", "--spurious", "0.1", "--duplicate", "0.05", "--seed", "5"]
    status, result = answer(capsys, *tokens, "--out", out)
    assert status == 0
    assert hashes(toys) == before
    n = len(boxmend.load(f"{toys}:train"))
    counts = result["counts"]
    assert (counts["missing"], counts["spurious"], counts["duplicate"]) == (
        round(0.1 * n),
        round(0.1 * n),
        round(0.05 * n),
    )
    noisy = boxmend.load(out)
    truth = pq.read_table(out / "truth.parquet")
    present = [one for one in truth["annotation_id"].to_pylist() if one is not None]
    assert sorted(present) == sorted(noisy.annotation_ids.tolist())
    record = json.loads((out / "noise.json").read_text())
    written = hashlib.sha256((out / "instances_train.json").read_bytes()).hexdigest()
    assert record["sha256"] == result["sha256"] == join_digests(record["files"]) == written
    again = tmp_path / "again"
    assert answer(capsys, *tokens, "--out", again)[1]["sha256"] == result["sha256"]


@pytest.mark.parametrize("target", ["voc", "yolo"])
def test_two_label_rates_with_one_seed_share_the_same_boxes(
    target: str, toys: Path, tmp_path: Path
) -> None:
    clean = tmp_path / "clean"
    assert run(["convert", f"{toys}:train", "--to", target, "--out", str(clean)]) == 0
    for rate in ("0.2", "0.6"):
        tokens = ["noise", str(clean), "--boxes", "uniform:0.4", "--out", str(tmp_path / rate)]
        assert run([*tokens, "--labels", f"symmetric:{rate}"]) == 0
    low, high = boxmend.load(tmp_path / "0.2"), boxmend.load(tmp_path / "0.6")
    assert np.array_equal(low.boxes, high.boxes)
    wrong = [dataset.labels != boxmend.load(clean).labels for dataset in (low, high)]
    n = len(low)
    assert [one.sum() for one in wrong] == [round(0.2 * n), round(0.6 * n)]
    assert not (wrong[0] & ~wrong[1]).any()  # what is wrong at 20 % is wrong at 60 %


def test_noise_of_a_detector_reads_its_predictions_and_records_them(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = boxmend.load(f"{toys}:train")
    names = clean.label_names
    results = [
        {
            "image_id": int(clean.images.ids[clean.image_rows[row]]),
            "category_name": names[(clean.labels[row] + 1) % len(names)],
            "bbox": [
                *clean.boxes[row, :2].tolist(),
                *(clean.boxes[row, 2:] - clean.boxes[row, :2]).tolist(),
            ],
            "score": 0.8,
        }
        for row in range(len(clean))
    ]
    path = tmp_path / "found.json"
    path.write_text(json.dumps(results))
    tokens = ["noise", f"{toys}:train", "--look-alikes", "0.1", "--out"]
    status, result = answer(capsys, *tokens, tmp_path / "out", "--predictions", path)
    assert status == 0
    assert result["counts"]["labels_changed"] == round(0.1 * len(clean))
    record = json.loads((tmp_path / "out" / "noise.json").read_text())
    assert record["settings"]["look_alikes"] == 0.1
    assert len(record["detections_sha256"]) == 64
    assert run([*tokens, str(tmp_path / "other")]) == 2
    assert "give them by --predictions" in capsys.readouterr().err
    pairs = ["--look-alike-pair", "/".join(names[:2]), "--missing-order", "small"]
    status, result = answer(capsys, *tokens, tmp_path / "pairs", *pairs, "--gross-boxes", "0.05")
    assert status == 0
    assert result["counts"]["labels_changed"] == round(0.1 * len(clean))
    assert result["counts"]["boxes_changed"] == round(0.05 * len(clean))
