"""A whole way: the embedded dataset drawn and spoiled, a training, its dataset mended, and back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import NoiseSettings, write_noisy
from boxmend.runs import ledger
from boxmend.runs.settings import MendSettings
from boxmend.runs.settling import num_settling_visits
from boxmend.training.train import train
from tests.training.small_runs import QUICK


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_a_run_is_applied_and_reverted(tmp_path: Path, format: str) -> None:
    boxmend.synthesize(tmp_path / "clean", images=10, size=96, format=format)
    noise = NoiseSettings(labels="symmetric:0.4", boxes="uniform:0.3")
    noisy = boxmend.disturb(boxmend.load(f"{tmp_path / 'clean'}:train"), noise)
    write_noisy(noisy, noise, tmp_path / "noisy", WriteOptions())
    address = f"{tmp_path / 'noisy'}:train"
    settings = replace(QUICK, label_noise=0.4, box_noise=0.3, mend=MendSettings(raw_box_share=0.5))
    run = train([address], tmp_path / "run", settings)

    result = boxmend.apply(run.path, tmp_path / "mended")
    before = boxmend.load(address)
    after = boxmend.load(f"{tmp_path / 'mended'}:train")
    comparison = boxmend.compare(before, after)
    assert comparison.box_changed > 0  # an untrained detector moves whatever it may
    assert comparison.box_changed == result.changes.is_moved.sum()
    assert comparison.label_changed == result.changes.is_relabelled.sum()
    assert (comparison.added, comparison.removed) == (0, 0)
    ensure_last_visits(run.path, before, after)

    plain = tmp_path / "plain"
    before.save(plain)
    boxmend.revert(tmp_path / "mended")
    assert contents(tmp_path / "mended") == contents(plain)
    if format != "yolo":  # whose data.yaml has the paths of its place
        names = contents(plain).keys()
        original = contents(tmp_path / "noisy")
        assert {name: original[name] for name in names} == contents(plain)


def ensure_last_visits(run: Path, before: boxmend.Dataset, after: boxmend.Dataset) -> None:
    """Assert that what was visited in the last of two epochs has the label of that visit."""
    assert num_settling_visits(QUICK.epochs) == 1
    columns = ["annotation_id", "verdict", "new_label", "old_label"]
    labels = dict(zip(before.annotation_ids.tolist(), after.labels.tolist(), strict=True))
    names = before.label_names
    for visit in ledger.read(run, columns, last_epoch_only=True).to_pylist():
        kind = {"relabelled": "new_label"}.get(visit["verdict"], "old_label")
        assert after.label_names[labels[visit["annotation_id"]]] == names[visit[kind]]
    assert np.isfinite(after.boxes).all()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in {".json", ".xml", ".txt", ".yaml"} and path.name != "noise.json"
    }


def test_the_mended_dataset_trains_again(tmp_path: Path) -> None:
    boxmend.synthesize(tmp_path / "data", images=10, size=96)
    settings = replace(QUICK, label_noise=0.4, box_noise=0.3, mend=MendSettings(raw_box_share=0.5))
    run = train([f"{tmp_path / 'data'}:train"], tmp_path / "run-1", settings)
    boxmend.apply(run.path, tmp_path / "mended")
    again = train([f"{tmp_path / 'mended'}:train"], tmp_path / "run-2", settings)
    assert again.is_finished
    boxmend.apply(again.path, tmp_path / "mended-2")
    assert len(boxmend.load(tmp_path / "mended-2")) == len(boxmend.load(tmp_path / "mended"))
