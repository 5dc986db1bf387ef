"""`boxmend bench audit-suite` with three small regimes on the drawn dataset."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend.bench.audit.regimes import choose_regimes, make_regimes
from boxmend.bench.audit.suite_tables import make_tables
from boxmend.cli import run
from boxmend.data.dataset import Dataset
from boxmend.errors import UsageError
from boxmend.scoring.finders.kinds import OTHERS
from tests.auditing import audit_data

NUM_IMAGES = 160
REGIMES = ("symmetric-20", "missing-20", "company-mix")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the drawn dataset without errors, and predictions of detectors trained on it."""
    pytest.importorskip("cleanlab")
    folder = tmp_path_factory.mktemp("suite")
    clean = audit_data.audited(audit_data.CLEAN)
    dataset: Dataset = clean.dataset.take_images(np.arange(NUM_IMAGES))
    dataset.save(folder / "clean", images_as="none")
    predictions = clean.predictions
    rows = np.flatnonzero(predictions.image_rows < NUM_IMAGES)
    results = [
        {
            "image_id": int(dataset.images.ids[predictions.image_rows[row]]),
            "category_name": dataset.label_names[predictions.labels[row]],
            "bbox": [
                *predictions.boxes[row, :2].tolist(),
                *(predictions.boxes[row, 2:] - predictions.boxes[row, :2]).tolist(),
            ],
            "score": float(predictions.scores[row]),
        }
        for row in rows.tolist()
    ]
    (folder / "predictions.json").write_text(json.dumps(results))
    return folder


def command(world: Path, *more: str) -> list[str]:
    predictions = ("--predictions", str(world / "predictions.json"))
    return ["bench", "audit-suite", str(world / "clean"), *predictions, *more]


@pytest.fixture(scope="module")
def suite(world: Path) -> Path:
    """The folder of a finished suite."""
    words = command(world, "--regimes", ",".join(REGIMES), "--seeds", "2")
    assert run([*words, "--out", str(world / "suite")]) == 0
    return world / "suite"


@pytest.fixture(scope="module")
def cells(suite: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(suite.iterdir())]


def test_there_is_a_file_for_each_regime_and_seed(suite: Path) -> None:
    names = {path.name for path in suite.iterdir()}
    assert names == {f"{regime}-{seed}.json" for regime in REGIMES for seed in (0, 1)}


def test_every_finder_ranks_the_errors_that_were_planted(cells: list[dict[str, Any]]) -> None:
    tables = make_tables(cells)
    rows = {(row.kind, row.regime): row for row in tables.ranking}
    assert {regime for kind, regime in rows if kind == "wrong label"} == {
        "symmetric-20",
        "company-mix",
    }
    wrong = rows["wrong label", "symmetric-20"]
    eligible = cells[0]["counts"]["eligible"]
    assert wrong.errors == round(0.2 * eligible)
    assert set(wrong.ap) == {"boxmend", *OTHERS}
    for value in wrong.ap.values():
        assert value is not None
        assert 0.2 < value <= 1  # the drawn classes are easy to tell apart
    missing = rows["missing", "missing-20"]
    assert missing.errors == round(0.2 * eligible)
    assert missing.ap["short rules"] is None
    assert (missing.ap["boxmend"] or 0) > 0.5


def test_rates_are_compared_with_what_was_planted(cells: list[dict[str, Any]]) -> None:
    rows = {(row.regime, row.kind): row for row in make_tables(cells).rates}
    assert rows["symmetric-20", "wrong label"].true == pytest.approx(0.2, abs=0.002)
    assert rows["missing-20", "missing"].true == pytest.approx(0.2, abs=0.002)
    mix = {kind: rows["company-mix", kind].true for kind in ("wrong label", "missing", "spurious")}
    assert mix == pytest.approx({"wrong label": 0.03, "missing": 0.05, "spurious": 0.02}, abs=0.006)
    row = rows["symmetric-20", "wrong label"]
    assert abs(row.estimate - 0.2) < 0.06
    assert row.seeds == 2


def test_fixes_are_counted_at_each_precision(cells: list[dict[str, Any]]) -> None:
    rows = [row for row in make_tables(cells).promise if row.regime == "symmetric-20"]
    assert [row.precision for row in rows] == [0.95, 0.9, 0.8]
    assert rows[0].fixes <= rows[1].fixes <= rows[2].fixes
    assert rows[2].fixes > 50
    assert 0.7 < rows[2].right / rows[2].fixes <= 1


def test_finished_cells_are_not_measured_again(
    world: Path, suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("this cell is measured")

    monkeypatch.setattr("boxmend.bench.audit.suite.measure_cell", refuse)
    words = command(world, "--regimes", ",".join(REGIMES), "--seeds", "2", "--out", str(suite))
    capsys.readouterr()
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "average precision of the rankings" in text
    assert "estimated rates with 95 % intervals" in text
    assert run([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["cells"]) == 6
    assert answer["seeds"] == [0, 1]
    (suite / "symmetric-20-1.json").rename(world / "kept.json")
    assert run(words) == 2
    assert "this cell is measured" in capsys.readouterr().err
    (world / "kept.json").rename(suite / "symmetric-20-1.json")


def test_cells_of_other_predictions_are_refused(
    world: Path, suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = json.loads((world / "predictions.json").read_text())
    other = world / "other.json"
    other.write_text(json.dumps(results[:-1]))
    words = ["bench", "audit-suite", str(world / "clean"), "--predictions", str(other)]
    assert run([*words, "--regimes", "missing-20", "--seeds", "1", "--out", str(suite)]) == 2
    message = capsys.readouterr().err
    assert "measured with another predictions_sha256; choose a new folder by --out" in message


def test_a_damaged_cell_is_refused_by_name(
    world: Path, suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (suite / "missing-20-0.json").read_text()
    (tmp_path / "missing-20-0.json").write_text(content.replace('"seed": 0', '"seed": 3', 1))
    words = command(world, "--regimes", "missing-20", "--seeds", "1", "--out", str(tmp_path))
    assert run(words) == 3
    assert "missing-20-0.json" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}", "[]", "nonsense", '{"seed": 0, "identity": "x"}'])
def test_a_cell_without_a_digest_is_refused(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "missing-20-0.json").write_text(content)
    words = command(world, "--regimes", "missing-20", "--seeds", "1", "--out", str(tmp_path))
    assert run(words) == 3
    assert "missing-20-0.json: has no digest" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data"], "give --predictions"),
        (["--predictions", "x.json"], "give the dataset"),
        (["data", "--predictions", "x.json", "--seeds", "0"], "--seeds is 0"),
        (["data", "--predictions", "x.json", "--first-seed", "-1"], "--first-seed is -1"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_read(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cleanlab")
    assert run(["bench", "audit-suite", *words]) == 2
    assert message in capsys.readouterr().err


def test_look_alikes_are_common_pairs_or_those_that_are_named() -> None:
    by_name = {regime.name: regime for regime in make_regimes(("cat", "dog", "person", "bus"))}
    assert by_name["look-alikes-3"].settings.look_alike_pairs == ("cat/dog",)
    assert by_name["confusions-3"].settings.look_alike_pairs == ()
    named = make_regimes(("cat", "dog", "person"), ["cat/person"], "matrix.json")
    by_name = {regime.name: regime for regime in named}
    assert by_name["look-alikes-10"].settings.look_alike_pairs == ("cat/person",)
    assert by_name["matrix"].settings.labels == "matrix:matrix.json"
    assert "look-alikes-3" not in {regime.name for regime in make_regimes(("cell", "nucleus"))}
    assert by_name["pair-3"].with_seed(4).seed == 4


def test_the_regimes_are_those_of_real_datasets() -> None:
    names = [regime.name for regime in make_regimes(("cat", "dog"))]
    assert len(names) == len(set(names)) == 27
    with pytest.raises(UsageError, match="no regime 'clear'; there are symmetric-3, "):
        choose_regimes(make_regimes(("cat", "dog")), ["clear"])
    chosen = choose_regimes(make_regimes(("cat", "dog")), ["clean", "gross-5"])
    assert [regime.name for regime in chosen] == ["clean", "gross-5"]
