"""Models that can be used, and those that cannot; what a training writes into its own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import boxmend
from boxmend.data.formats.coco.sizes import get_category_ids
from boxmend.detector import backbones, save
from boxmend.errors import BoxmendError, DataError, UsageError
from boxmend.runs import folder as runs
from boxmend.runs.settings import Optimisation, TrainSettings
from boxmend.training.card import ModelCard, make_card, read_card
from boxmend.training.prediction import model
from boxmend.training.prediction.model import open_model
from boxmend.training.train import train
from tests.training.prediction.prediction_runs import CARD, drawn, finished_run, lively_detector


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        result: dict[str, str] = file.metadata()
    return result


def test_a_card_survives_its_file(finished: Path) -> None:
    assert open_model(finished)[1] == CARD
    assert open_model(finished / "model.safetensors")[1] == CARD


def test_an_unfinished_run_has_no_model(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    (run / "finished").unlink()
    with pytest.raises(DataError, match=r"run: the run is not finished.*boxmend train --resume"):
        open_model(run)


def test_an_audit_has_no_model(tmp_path: Path) -> None:
    runs.create(tmp_path / "audit", {}, {"kind": "audit"}).finish()
    with pytest.raises(DataError, match=r"audit: an audit has no model"):
        open_model(tmp_path / "audit")


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: no such run, and no such model file"):
        open_model(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"has no run\.json, so it is not the folder of a run"):
        open_model(tmp_path)
    run = runs.create(tmp_path / "bare", {}, {})
    run.finish()
    with pytest.raises(DataError, match=r"model.safetensors: no such weight file"):
        open_model(run.path)


def test_a_file_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.safetensors"
    text.write_text("no model")
    with pytest.raises(DataError, match=r"text.safetensors: not a readable safetensors file"):
        open_model(text)
    with pytest.raises(
        DataError, match=r"tiny.safetensors: its metadata have no .*not the model of a run"
    ):
        open_model(backbones.SHIPPED_TINY)
    plain = tmp_path / "plain.safetensors"
    save(lively_detector(), plain)
    with pytest.raises(DataError, match="its metadata have no label_names"):
        open_model(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_names": "[1, 2"}, "its metadata are damaged"),
        ({"label_names": "{}"}, "its metadata about labels are damaged"),
        ({"label_names": "[]", "category_ids": "[]"}, "its metadata about labels are damaged"),
        ({"label_names": "[1, 2, 3]"}, "its metadata about labels are damaged"),
        ({"label_names": '"abc"'}, "its metadata about labels are damaged"),
        ({"label_names": "null"}, "its metadata about labels are damaged"),
        ({"category_ids": "[1, 2]"}, "3 labels with 2 category ids"),
        ({"category_ids": "[1, 2, 3.5]"}, "its metadata about labels are damaged"),
        ({"category_ids": "[1, 2, true]"}, "its metadata about labels are damaged"),
        ({"image_size": "huge"}, "image_size is 'huge'"),
        ({"detector": "vgg"}, "of a detector 'vgg'"),
        ({"label_names": "[" * 100_000}, "its metadata are damaged"),
    ],
)
def test_the_message_names_the_file_of_a_damaged_card(
    changes: dict[str, str], message: str
) -> None:
    card = {"detector": "tiny", **CARD.metadata(), **changes}
    with pytest.raises(DataError, match=r"m.safetensors: ") as caught:
        read_card(card, "m.safetensors")
    assert message in str(caught.value)


def test_a_card_of_other_classes_than_the_weights_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(lively_detector(), path, replace(CARD, label_names=("a",), category_ids=(1,)).metadata())
    with pytest.raises(DataError, match=r"model.safetensors: a detector of 3 classes, not 1"):
        open_model(path)


def test_half_a_model_is_refused(tmp_path: Path) -> None:
    tensors = lively_detector().network.state_dict()
    some = {key: value for key, value in tensors.items() if not key.startswith("roi_heads.")}
    path = tmp_path / "half.safetensors"
    save_file(some, path, {"detector": "tiny", **CARD.metadata()})
    with pytest.raises(BoxmendError, match=r"half.safetensors: contains no detector"):
        open_model(path)


def coco(folder: Path, categories: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    drawn(folder / "a.png")
    numbers = list(categories.values())
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 96, "height": 64}],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": numbers[0], "bbox": [9, 9, 40, 40]}
        ],
        "categories": [{"id": number, "name": name} for name, number in categories.items()],
    }
    path = folder / "instances_train.json"
    path.write_text(json.dumps(document))
    return path


def test_category_ids_are_those_of_the_source(tmp_path: Path) -> None:
    dataset = boxmend.load(coco(tmp_path, {"cat": 17, "dog": 5}))
    assert get_category_ids(dataset) == (17, 5)
    settings = TrainSettings(detector="tiny", image_size="128")
    assert make_card(settings, dataset) == ModelCard("tiny", ("cat", "dog"), (17, 5), "128")


def test_category_ids_of_several_sources_are_never_twice_the_same(tmp_path: Path) -> None:
    one = coco(tmp_path / "one", {"cat": 17, "dog": 5})
    other = coco(tmp_path / "other", {"bird": 17, "dog": 8, "fish": 40})
    dataset = boxmend.load(one, other)
    assert dataset.label_names == ("cat", "dog", "bird", "fish")
    assert get_category_ids(dataset) == (17, 5, 41, 40)


def test_without_a_coco_source_labels_are_counted_from_one(tmp_path: Path) -> None:
    boxmend.synthesize(tmp_path / "toys", images=3, format="voc")
    dataset = boxmend.load(tmp_path / "toys")
    assert get_category_ids(dataset) == tuple(range(1, len(dataset.label_names) + 1))


@pytest.mark.parametrize("keep_best", [False, True])
def test_a_training_writes_its_card(tmp_path: Path, keep_best: bool) -> None:
    data = str(coco(tmp_path, {"cat": 17, "dog": 5}))
    settings = TrainSettings(
        detector="tiny",
        weights="none",
        image_size="96",
        epochs=1,
        batch_size=1,
        keep_best=keep_best,
        optimisation=Optimisation(lr=1e-4),
    )
    run = train([data], tmp_path / "run", settings, val=[data] if keep_best else ())
    card = metadata(run.path / "model.safetensors")
    assert read_card(card, "it") == ModelCard("tiny", ("cat", "dog"), (17, 5), "96")
    predictions = boxmend.predict(run.path, [data], score_threshold=0.0)
    assert {result["category_id"] for result in predictions.results()} <= {17, 5}
    assert len(predictions) > 0


def test_a_file_cannot_have_a_network_built_that_it_does_not_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"label {k}" for k in range(5000))
    path = tmp_path / "model.safetensors"
    card = replace(CARD, label_names=names, category_ids=tuple(range(5000)))
    save_file({"x": torch.zeros(1)}, path, {"detector": "tiny", **card.metadata()})
    monkeypatch.setattr(model, "build", None)  # which is not called
    with pytest.raises(DataError, match=r"model\.safetensors: contains no detector"):
        open_model(path)
    save(lively_detector(), path, card.metadata())
    with pytest.raises(DataError, match="a detector of 3 classes, not 5000"):
        open_model(path)


@pytest.mark.parametrize("name", ["MODEL_BYTES", "MODEL_HEADER_BYTES", "MODEL_LABELS"])
def test_a_model_above_a_limit_is_refused(
    name: str, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"BOXMEND_MAX_{name}", "2")
    with pytest.raises(DataError, match=f"more than the limit of 2; .*BOXMEND_MAX_{name}"):
        open_model(finished)
