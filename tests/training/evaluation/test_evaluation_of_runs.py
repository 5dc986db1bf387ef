"""The scores of a run, which are those it gave itself."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import fingerprint
from boxmend.detector import build, save
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.runs import folder as runs
from boxmend.runs.folder import Run
from boxmend.runs.settings import Optimisation, TrainSettings
from boxmend.training.card import ModelCard
from boxmend.training.evaluation import detections_of_run, evaluate
from boxmend.training.prediction import annotated
from tests.training.evaluation.scored_files import KEYS, two_images

QUICK = TrainSettings(
    method="baseline",
    detector="tiny",
    image_size="96",
    epochs=3,
    batch_size=4,
    optimisation=Optimisation(optimizer="adamw", lr=2e-3, warm_up_steps=5, schedule="cosine"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Drawn data, and a run that was scored on its part `val` while it was trained."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # quicker for so small a model, the more so beside other tests
    folder = tmp_path_factory.mktemp("scored")
    boxmend.synthesize(folder / "toys", images=20)
    toys = str(folder / "toys")
    boxmend.train([f"{toys}:train"], folder / "run", QUICK, val=[f"{toys}:val"])
    yield folder
    torch.set_num_threads(threads)


def rename_labels(place: Path, **names: str) -> Dataset:
    """The part `val` with some classes called otherwise."""
    dataset = boxmend.load(f"{place / 'toys'}:val")
    dataset.label_names = tuple(names.get(name, name) for name in dataset.label_names)
    return dataset


def test_a_run_scores_as_it_did_while_training(place: Path) -> None:
    address = f"{place / 'toys'}:val"
    evaluation = evaluate(place / "run", data=[address])
    summary = Run(place / "run").summary()
    assert summary["val"]["voc_ap50_area"] > 0.1
    for key in ("voc_ap50_11point", "voc_ap50_area"):
        assert evaluation.figures[key] == summary["val"][key]
    areas = {name: one["voc_ap50_area"] for name, one in evaluation.by_label.items()}
    assert areas == summary["val_by_label"]
    assert evaluation.notes == []
    assert evaluation.saved == place / "run" / "evaluation.json"
    assert evaluation.num_images == 4
    written = json.loads((place / "run" / "evaluation.json").read_bytes())
    assert written.pop("digest").startswith("sha256:")
    more = {key: written.pop(key) for key in ("notes", "addresses", "sha256")}
    assert written == evaluation.to_json()
    dataset = boxmend.load(address)
    expected = {"notes": [], "addresses": [address], "sha256": fingerprint(dataset)}
    assert more == expected


def test_its_detections_are_written_as_results_that_score_alike(
    place: Path, tmp_path: Path
) -> None:
    out, data = tmp_path / "found.json", f"{place / 'toys'}:val"
    evaluation = evaluate(place / "run", data=data, detections_out=out)
    results = json.loads(out.read_bytes())
    assert len(results) == evaluation.num_detections > 20
    again = evaluate(predictions=out, data=data)
    assert again.num_detections == evaluation.num_detections
    assert {key: again.figures[key] for key in KEYS} == pytest.approx(evaluation.figures, abs=0.01)
    with pytest.raises(OutputError, match="exists already"):
        evaluate(place / "run", data=data, detections_out=out)
    assert json.loads(out.read_bytes()) == results


def test_the_scores_are_replaced_each_time(place: Path) -> None:
    for split in ("train", "val"):
        evaluate(place / "run", data=f"{place / 'toys'}:{split}")
        written = json.loads((place / "run" / "evaluation.json").read_bytes())
        assert written["addresses"] == [f"{place / 'toys'}:{split}"]


def test_classes_are_matched_by_name_and_unknown_ones_noted(place: Path) -> None:
    plain = evaluate(place / "run", data=f"{place / 'toys'}:val")
    evaluation = evaluate(place / "run", data=rename_labels(place, star="comet", ring="halo"))
    assert evaluation.by_label["gear"] == plain.by_label["gear"]
    assert evaluation.by_label["comet"]["AP"] is None
    assert evaluation.by_label["comet"]["annotations"] == plain.by_label["star"]["annotations"]
    assert evaluation.by_label["comet"]["detections"] == 0
    assert evaluation.notes[0] == "the model has no class halo, comet: left out of all figures"
    lost = sum(plain.by_label[name]["detections"] or 0 for name in ("star", "ring"))
    assert any(note.startswith(f"{lost:,} detections have classes") for note in evaluation.notes)
    known = [plain.by_label[name]["AP"] or 0 for name in ("arrow", "gear", "moon", "plus")]
    assert evaluation.figures["AP"] == pytest.approx(np.mean(known))


def test_unreadable_images_are_reported_and_have_no_detections(place: Path) -> None:
    dataset = rename_labels(place)
    dataset.images.paths[2] = str(place / "gone.png")
    evaluation = evaluate(place / "run", data=dataset)
    assert len(evaluation.notes) == 1
    assert evaluation.notes[0].startswith("1 images cannot be read")
    assert "gone.png" in evaluation.notes[0]
    detections = detections_of_run(place / "run", dataset).detections
    assert 2 not in detections.image_rows
    assert set(detections.image_rows.tolist()) <= {0, 1, 3}


def test_a_model_file_alone_is_scored_and_nothing_written(place: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in (place / "run").iterdir()}
    evaluation = evaluate(place / "run" / "model.safetensors", data=f"{place / 'toys'}:val")
    assert (evaluation.figures["AP"] or 0) > 0
    assert evaluation.saved is None
    assert {path.name: path.stat().st_mtime_ns for path in (place / "run").iterdir()} == before


def a_run_with(settings: dict[str, Any], folder: Path) -> Path:
    run = runs.create(folder, settings, {})
    card = ModelCard("tiny", ("arrow", "gear"), (1, 2), "96")
    save(build("tiny", 2), folder / "model.safetensors", card.metadata())
    run.finish()
    return folder


def test_settings_that_a_run_does_not_tell_are_replaced(tmp_path: Path, place: Path) -> None:
    evaluation = evaluate(a_run_with({}, tmp_path / "run"), data=f"{place / 'toys'}:val")
    assert evaluation.figures["AP"] is not None


@pytest.mark.parametrize(("stored", "used"), [(3, 3), (4096, 4096), (4097, 8)])
def test_a_batch_beyond_the_limit_is_replaced_by_the_usual_one(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, stored: int, used: int
) -> None:
    sizes: list[int] = []
    detect = vars(annotated)["detect"]

    def watch(detector: Any, loader: Any, batch_size: int, **options: Any) -> Any:
        sizes.append(batch_size)
        return detect(detector, loader, batch_size, **options)

    monkeypatch.setattr(annotated, "detect", watch)
    evaluate(a_run_with({"batch_size": stored}, tmp_path / "run"), data=f"{place / 'toys'}:val")
    assert sizes == [used]


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"batch_size": "many"}, "batch_size"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"precision": 7}, "precision"),
        ({"image_size": "0"}, "image_size is '0'"),
        ({"precision": "\ud800"}, "'utf-8' codec .*surrogates not allowed"),
    ],
)
def test_settings_that_no_run_can_have_are_refused(
    tmp_path: Path, place: Path, wrong: dict[str, Any], key: str
) -> None:
    run = a_run_with(wrong, tmp_path / "run")
    with pytest.raises(DataError, match=rf"settings\.json: {key}.*; restore the value"):
        evaluate(run, data=f"{place / 'toys'}:val")


def test_data_that_cannot_be_scored_are_refused_and_nothing_written(
    place: Path, tmp_path: Path
) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in (place / "run").iterdir()}
    with pytest.raises(DataError, match="share no class with the run: cat, dog against"):
        evaluate(place / "run", data=two_images(tmp_path))
    with pytest.raises(DataError, match="have no images"):
        evaluate(place / "run", data=two_images(tmp_path, images=[], annotations=[]))
    with pytest.raises(UsageError, match="no such run"):
        evaluate(place / "nowhere", data=f"{place / 'toys'}:val")
    assert {path.name: path.stat().st_mtime_ns for path in (place / "run").iterdir()} == before


def test_figures_that_cannot_be_saved_are_given_all_the_same(place: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(place / "run", tmp_path / "run"))
    (run / "evaluation.json").unlink(missing_ok=True)
    (run / "evaluation.json").mkdir()  # something is in its place
    evaluation = evaluate(run, data=f"{place / 'toys'}:val")
    assert evaluation.figures["AP"] is not None
    assert evaluation.saved is None
    assert "evaluation.json: could not be written" in evaluation.notes[0]
    assert "figures were not saved" in evaluation.notes[0]
    assert sorted(path.name for path in run.iterdir()) == sorted(
        {*(path.name for path in (place / "run").iterdir()), "evaluation.json"}
    )


def test_hostile_class_names_survive_in_the_file(place: Path) -> None:
    evaluation = evaluate(place / "run", data=rename_labels(place, star='<b>"=1+1"\ud800'))
    written = json.loads((place / "run" / "evaluation.json").read_bytes())
    assert list(written["by_label"]) == list(evaluation.by_label)
