"""The simulation of reviews: a whole call on a drawn dataset, and its means by hand."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from boxmend.bench.audit.reviews import DISTORTIONS, ORDERS, Rest
from tests import ROOT
from tests.auditing.audit_scenes import Noise, scene


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("review_orders", ROOT / "tools/review_orders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_any_dataset_and_predictions_are_simulated(
    tool: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = scene(Noise(), images=120)
    drawn.dataset.save(tmp_path / "data", format="coco", images_as="none")
    detected = drawn.detected
    columns = (detected.image_rows, detected.labels, detected.scores, detected.boxes)
    entries = [
        {
            "image_id": int(image) + 1,
            "category_id": int(label) + 1,
            "bbox": [*box[:2].tolist(), *(box[2:] - box[:2]).tolist()],
            "score": float(score),
        }
        for image, label, score, box in zip(*columns, strict=True)
    ]
    (tmp_path / "predictions.json").write_text(json.dumps(entries))
    options = ["--regimes", "symmetric-20", "--seeds", "1", "--verdicts", "10", "--slips", "0"]
    predictions = ["--predictions", str(tmp_path / "predictions.json")]
    monkeypatch.setattr("sys.argv", ["tool", str(tmp_path / "data"), *predictions, *options])
    tool.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + (1 + len(DISTORTIONS)) * (1 + len(ORDERS))
    assert lines[2].startswith("| as audited | none | ")
    (unjudged,) = [line for line in lines if line.startswith("| calibrated | none |")]
    assert {cell.strip().lstrip("+-") for cell in unjudged.split("|")[3:-1]} <= {"0.000", ""}


def test_means_are_of_cases_with_enough_fixes(tool: ModuleType) -> None:
    cases = [Rest(100, 90.0, 80.0), Rest(60, 54.0, 54.0), Rest(59, 59.0, 0.0)]
    assert tool.average_errors(cases) == "+0.050"
    assert tool.average_errors(cases[2:]) == "-"
    assert cases[0].add(cases[1]) == Rest(160, 144.0, 134.0)
