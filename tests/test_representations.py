"""What the public functions return is described in at most ten lines, however much it holds."""

from pathlib import Path
from typing import Any

import pytest

import boxmend
from boxmend.auditing.audit import AuditSettings
from boxmend.auditing.calibration import Share
from boxmend.repair.mender import MenderUpdate
from boxmend.runs.settings import Optimisation
from tests.auditing.audit_scenes import Noise, scene

MAX_LINES = 10
MAX_CHARACTERS = 1200


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of the functions on 60 images, by name."""
    folder: Path = tmp_path_factory.mktemp("results")
    one = scene(Noise(labels=0.2, missing=0.05, duplicates=0.05), images=60)
    one.dataset.save(folder / "data", format="coco", images_as="none")
    dataset = boxmend.load(folder / "data")
    detected = one.detected
    predictions = boxmend.Predictions(
        dataset.images.ids[detected.image_rows], detected.boxes, detected.labels, detected.scores
    )
    settings = AuditSettings(probe=0.0)
    audit = boxmend.audit(dataset, predictions, settings)
    mended = audit.mended(0.8)
    audited = audit.save(folder / "audit")
    applied = boxmend.apply(folder / "audit", folder / "applied")
    noise = boxmend.NoiseSettings(boxes="uniform:0.2")
    entries = predictions.to_table().to_pandas()
    entries.to_csv(folder / "found.csv", index=False)
    return {
        "load": dataset,
        "images": dataset.images,
        "source": dataset.sources[0],
        "Predictions": predictions,
        "read_predictions": boxmend.read_predictions([folder / "found.csv"], dataset),
        "audit": audit,
        "columns": audit.columns,
        "fixes": audit.fixes,
        "fixes as columns": audit.columns.fixes,
        "rates": audit.rates,
        "mended": mended,
        "changes": mended.changes,
        "changes as columns": mended.applied,
        "save": mended.save(folder / "mended"),
        "audit.save": audited,
        "apply": applied,
        "revert": boxmend.revert(folder / "applied"),
        "compare": boxmend.compare(dataset, mended),
        "disturb": boxmend.disturb(dataset, noise),
        "synthesize": boxmend.synthesize(folder / "toys", images=2),
        "export": boxmend.export(folder / "audit", folder / "exported", "coco"),
        "settings": settings,
        "train settings": boxmend.TrainSettings(epochs=3, optimisation=Optimisation(lr=0.5)),
    }


NAMES = [
    *("load", "images", "source", "Predictions", "read_predictions", "audit", "columns"),
    *("fixes", "fixes as columns", "rates", "mended", "changes", "changes as columns", "save"),
    *("audit.save", "apply", "revert", "compare", "disturb", "synthesize", "export"),
    *("settings", "train settings"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_described_in_ten_lines(results: dict[str, Any], name: str) -> None:
    text = repr(results[name])
    assert len(text.splitlines()) <= MAX_LINES, text[:2000]
    assert len(text) <= MAX_CHARACTERS, text[:2000]


def test_every_result_is_in_the_list(results: dict[str, Any]) -> None:
    assert set(results) == set(NAMES)


def test_only_settings_that_are_no_defaults_are_shown(results: dict[str, Any]) -> None:
    assert repr(results["train settings"]).startswith("TrainSettings(epochs=3, optimisation=Opti")


def test_columns_are_described_by_their_size(results: dict[str, Any]) -> None:
    fixes = results["columns"].fixes
    number = len(fixes)
    assert f"ids=<list of {number}>" in repr(fixes)
    assert f"old_boxes=<ndarray {number}x4>" in repr(fixes)
    assert f"fixes=<Fixes of {number}>" in repr(results["columns"])


def test_numbers_have_four_digits() -> None:
    assert repr(Share(1 / 3, 0.25, 2 / 3)) == "Share(0.3333, low=0.25, high=0.6667)"
    update = MenderUpdate(
        epoch=3,
        is_warm_up=False,
        agreement=0.123456,
        num_judged=12345,
        num_relabelled=1,
        num_unsure=0,
        num_moved=2,
        num_spurious=0,
        num_missing=0,
        label_noise=Share(0.1, 0.0, 0.2),
        box_noise=Share(0.0, 0.0, 0.0),
    )
    assert "agreement=0.1235, num_judged=12345" in repr(update)
