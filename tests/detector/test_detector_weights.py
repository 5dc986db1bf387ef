"""Weight files: read, written and refused. Nothing here is downloaded."""

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torchvision.models import ResNet18_Weights, mobilenet_v2, resnet18, resnet50

from boxmend.detector import (
    DETECTORS,
    Detector,
    DetectorNumbers,
    build,
    describe,
    load_file,
    read_metadata,
    save,
)
from boxmend.detector.weights import read_file
from boxmend.errors import DataError


def backbone_file(path: Path, network: torch.nn.Module, metadata: dict[str, str]) -> Path:
    """As such files are: convolutions in half precision, the classifier may be there."""
    tensors = {
        key: value.half() if value.dim() == 4 else value
        for key, value in network.state_dict().items()
    }
    save_file(tensors, path, metadata)
    return path


def strides(made: Detector) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    body = made.network.backbone.body
    return [
        (layer[0].conv1.stride, layer[0].conv2.stride)
        for layer in (body.layer2, body.layer3, body.layer4)
    ]


def test_a_backbone_file_fills_the_backbone_in_single_precision(tmp_path: Path) -> None:
    network = resnet18(weights=None)
    path = backbone_file(tmp_path / "r18.safetensors", network, {})
    made = build("resnet18", 3, path)
    body = made.network.backbone.body.state_dict()
    for key, value in network.state_dict().items():
        if not key.startswith("fc.") and not key.endswith("num_batches_tracked"):
            assert body[key].dtype == torch.float32
            assert torch.equal(body[key], value.half().float() if value.dim() == 4 else value)
    frozen = {
        key.split(".")[0]
        for key, value in made.network.backbone.body.named_parameters()
        if not value.requires_grad
    }
    assert frozen == {"conv1", "layer1"}


def test_a_file_of_mobilenet_features_fills_its_blocks(tmp_path: Path) -> None:
    network = mobilenet_v2(weights=None)
    path = backbone_file(tmp_path / "m.safetensors", network, {})
    body = build("mobilenet_v2", 3, str(path)).network.backbone.body.state_dict()
    assert torch.equal(body["18.0.weight"], network.features[18][0].weight.half().float())


@pytest.mark.parametrize(
    ("metadata", "first", "second"),
    [
        ({"stride_in_1x1": "true"}, (2, 2), (1, 1)),
        ({"stride_in_1x1": "false"}, (1, 1), (2, 2)),
        ({}, (1, 1), (2, 2)),
    ],
)
def test_the_metadata_decide_where_a_resnet50_strides(
    tmp_path: Path, metadata: dict[str, str], first: tuple[int, int], second: tuple[int, int]
) -> None:
    path = backbone_file(tmp_path / "r50.safetensors", resnet50(weights=None), metadata)
    made = build("resnet50", 2, path)
    assert strides(made) == [(first, second)] * 3
    saved = tmp_path / "whole.safetensors"
    save(made, saved)
    assert strides(build("resnet50", 2, saved)) == [(first, second)] * 3


def test_strides_in_1x1_mean_nothing_to_other_networks(tmp_path: Path) -> None:
    metadata = {"stride_in_1x1": "true"}
    path = backbone_file(tmp_path / "r18.safetensors", resnet18(weights=None), metadata)
    with pytest.raises(DataError, match=r"r18.safetensors: has stride_in_1x1, but resnet18 has"):
        build("resnet18", 3, path)


def test_a_saved_detector_comes_back_whole(tmp_path: Path) -> None:
    made = build("tiny", 3)
    path = tmp_path / "model.safetensors"
    path.write_text("something older")
    save(made, path)
    again = build("tiny", 3, path)
    states = made.network.state_dict(), again.network.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]
    with safe_open(path, framework="pt") as file:
        assert file.metadata().items() > describe(made).items()
        assert file.metadata().keys() - describe(made).keys() == {"boxmend_digest"}
    assert read_file(path)[1] == read_metadata(path) == describe(made)
    assert describe(made) == {"detector": "tiny", "num_labels": "3", "stride_in_1x1": "false"}


def test_the_same_detector_and_metadata_give_the_same_bytes(tmp_path: Path) -> None:
    made = build("tiny", 3)
    names = [f"name{number}" for number in range(20)]
    save(made, tmp_path / "a", dict.fromkeys(names, "x"))
    save(made, tmp_path / "b", dict.fromkeys(reversed(names), "x"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    begin = int.from_bytes((tmp_path / "a").read_bytes()[:8], "little")
    assert begin % 8 == 0  # tensors are aligned


def test_a_changed_weight_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save(build("tiny", 3), path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for read in (read_file, read_metadata, lambda place: build("tiny", 3, place)):
        with pytest.raises(
            DataError, match=r"model\.safetensors: is damaged.*; restore the file from a copy"
        ):
            read(path)


def test_models_of_earlier_versions_are_read_with_a_note_and_weights_from_elsewhere_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, backbone = tmp_path / "model.safetensors", tmp_path / "backbone.safetensors"
    save_file({"a": torch.zeros(2)}, backbone, {"format": "pt"})
    save_file({"a": torch.zeros(2)}, model, {"detector": "tiny", "label_names": "[]"})
    assert read_metadata(backbone) == {"format": "pt"}
    assert caplog.records == []
    assert read_metadata(model) == {"detector": "tiny", "label_names": "[]"}
    assert ["has no digest" in record.getMessage() for record in caplog.records] == [True]


SAVING = """
import sys, torch
from pathlib import Path
from boxmend.detector import build, save
torch.manual_seed(3)
detector = build("tiny", 3, None)
for name in sys.argv[2:]:
    save(detector, Path(sys.argv[1], name), {f"key {k}": "ö" for k in range(9)})
"""


def test_equal_detectors_give_equal_bytes_in_any_process(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        names = [f"{seed}-{k}.safetensors" for k in range(3)]
        subprocess.run(
            [sys.executable, "-c", SAVING, str(tmp_path), *names],
            env={**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"},
            check=True,
        )
    contents = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(contents) == 6
    assert len(set(contents)) == 1
    length = int.from_bytes(contents[0][:8], "little")
    assert length % 8 == 0
    assert list(json.loads(contents[0][8 : 8 + length])["__metadata__"])[1:4] == [
        *("detector", "key 0", "key 1")
    ]
    with safe_open(tmp_path / "1-0.safetensors", framework="pt") as file:
        assert file.metadata()["key 8"] == "ö"
        wanted = build("tiny", 3, tmp_path / "1-0.safetensors").network.state_dict()
        assert all(torch.equal(file.get_tensor(key), value) for key, value in wanted.items())


def test_a_tiny_backbone_file_holds_the_neck_too(tmp_path: Path) -> None:
    trained = build("tiny", 39, frozen_norm=False)
    path = backbone_file(tmp_path / "tiny.safetensors", trained.network.backbone, {})
    made = build("tiny", 3, path)
    expected = trained.network.backbone.neck[2].weight.half().float()
    assert torch.equal(made.network.backbone.neck[2].weight, expected)
    assert not made.network.backbone.stem[0].weight.requires_grad
    assert made.network.backbone.stages[0][0][0].weight.requires_grad


def test_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "five.safetensors"
    save(build("tiny", 5), path)
    with pytest.raises(DataError, match=r"five.safetensors: a detector of 5 classes, not 3"):
        load_file(build("tiny", 3), path)


@pytest.mark.parametrize("asked", [{"box_heads": 2}, {"classifiers": 3}, {"has_spread": True}])
def test_the_heads_of_another_method_are_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    usual, other = build("tiny", 3), build("tiny", 3, numbers=with_heads(**asked))
    save(usual, tmp_path / "usual.safetensors")
    save(other, tmp_path / "other.safetensors")
    ((name, number),) = asked.items()
    has = int(getattr(DetectorNumbers(), name))
    with pytest.raises(DataError) as caught:
        load_file(other, tmp_path / "usual.safetensors")
    message = str(caught.value)
    assert f"usual.safetensors: a detector of another method ({name} {has} instead of" in message
    assert "or the weights of a backbone: lacks roi_heads.box_predictor" in message
    wanted = rf"other method \({name} {int(number)} instead of {has}\)"
    with pytest.raises(DataError, match=wanted):
        load_file(usual, tmp_path / "other.safetensors")
    load_file(other, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match=r"other.safetensors: a detector of 3 classes, not 5"):
        load_file(build("tiny", 5, numbers=with_heads(**asked)), tmp_path / "other.safetensors")


def with_heads(**asked: Any) -> DetectorNumbers:
    return replace(DETECTORS["tiny"].numbers, **asked)


def test_another_architecture_is_refused_with_the_differences(tmp_path: Path) -> None:
    path = backbone_file(tmp_path / "r50.safetensors", resnet50(weights=None), {})
    with pytest.raises(DataError) as caught:
        build("resnet18", 3, path)
    message = str(caught.value)
    assert "r50.safetensors: not a backbone resnet18" in message
    assert "has the unknown layer1.0.bn3.bias, layer1.0.bn3.running_mean" in message
    assert "layer1.0.conv1.weight is [64, 64, 1, 1] instead of [64, 64, 3, 3]" in message
    whole = tmp_path / "tiny.safetensors"
    save(build("tiny", 3), whole)
    with pytest.raises(DataError, match=r"tiny.safetensors: not a detector resnet18: lacks back"):
        build("resnet18", 3, whole)


def test_a_file_that_is_missing_or_no_safetensors_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere.safetensors: no such weight file"):
        build("tiny", 3, tmp_path / "nowhere.safetensors")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"PK\x03\x04 not what it seems")
    with pytest.raises(DataError, match=r"broken.safetensors: not a readable safetensors file"):
        build("tiny", 3, broken)


def test_the_default_is_announced_and_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = resnet18(weights=None)

    def instead(self: ResNet18_Weights, *args: object, **kwargs: object) -> dict[str, Tensor]:
        return dict(network.state_dict())

    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", instead)
    with caplog.at_level(logging.INFO, logger="boxmend.detector"):
        made = build("resnet18", 3, "default")
    assert "resnet18" in caplog.text
    assert "downloading" in caplog.text
    assert torch.equal(made.network.backbone.body.conv1.weight, network.conv1.weight)
    assert not made.network.backbone.body.conv1.weight.requires_grad


def test_a_failed_download_names_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: ResNet18_Weights, *args: object, **kwargs: object) -> dict[str, Tensor]:
        raise URLError("no route to host")

    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", refuse)
    with pytest.raises(DataError, match=r"https://.*resnet18.*the download failed.*no route"):
        build("resnet18", 3, "default")
