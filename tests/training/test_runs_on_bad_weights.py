"""Weight files and checkpoints that are broken, foreign or hostile: named, and no code run."""

import io
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from boxmend.data.dataset import Dataset
from boxmend.detector import build, save
from boxmend.errors import DataError, UsageError
from boxmend.training.train import Interrupted, train
from tests.training.small_runs import QUICK, Box, drawn, ensure_sound, trained

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES: list[tuple[int, Box]] = [(row, (10.0, 20.0, 60.0, 70.0)) for row in range(4)]
FEW: dict[str, Any] = {"epochs": 1, "batch_size": 2, "method": "baseline"}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return drawn(tmp_path / "data", BOXES)


class Payload:
    """What unpickling makes a file of, if it is ever done."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.marker,)


def in_a_pickle(payload: Payload) -> bytes:
    return pickle.dumps({"step": 1, "network": payload})


def in_an_archive(payload: Payload) -> bytes:
    """As torch.save writes it."""
    buffer = io.BytesIO()
    torch.save({"step": 1, "network": payload}, buffer)
    return buffer.getvalue()


HOSTILE = {"pickle": in_a_pickle, "archive": in_an_archive}


def test_the_payload_would_run(tmp_path: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    pickle.loads(in_a_pickle(Payload(tmp_path / "one")))
    torch.load(io.BytesIO(in_an_archive(Payload(tmp_path / "two"))), weights_only=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def file_of(name: str, num_labels: int, path: Path) -> dict[str, torch.Tensor]:
    """Write a random detector; its tensors."""
    save(build(name, num_labels), path)
    return load_file(path)


def lacking(path: Path) -> None:
    tensors = file_of("tiny", 3, path)
    del tensors["rpn.head.cls_logits.weight"]
    save_file(tensors, path)


def backbone_of_resnet(path: Path) -> None:
    save_file({"conv1.weight": torch.zeros(64, 3, 7, 7), "bn1.weight": torch.zeros(64)}, path)


def detector_of_resnet(path: Path) -> None:
    save_file({"backbone.body.conv1.weight": torch.zeros(64, 3, 7, 7)}, path)


def misshapen(path: Path) -> None:
    tensors = file_of("tiny", 3, path)
    tensors["rpn.head.cls_logits.bias"] = torch.zeros(5)
    save_file(tensors, path)


WRONG_WEIGHTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "no such weight file"),
    "a folder": (lambda path: path.mkdir(), "a folder, not a regular file"),
    "empty": (lambda path: path.write_bytes(b""), "not a readable safetensors file"),
    "garbage": (
        lambda path: path.write_bytes(np.random.default_rng(0).bytes(4000)),
        "not a readable safetensors file",
    ),
    "truncated": (
        lambda path: (file_of("tiny", 3, path), path.write_bytes(path.read_bytes()[:-9])),
        "is damaged, or was edited",
    ),
    "of other classes": (lambda path: file_of("tiny", 2, path), "2 classes, not 3"),
    "without a tensor": (lacking, "not a detector tiny: lacks rpn.head.cls_logits.weight"),
    "with a tensor of another shape": (misshapen, r"cls_logits.bias is \[5\] instead of \["),
    "a backbone of another kind": (backbone_of_resnet, "not a backbone tiny: lacks"),
    "a detector of another kind": (detector_of_resnet, "not a detector tiny: lacks"),
}


@pytest.mark.parametrize("kind", WRONG_WEIGHTS)
def test_wrong_weights_are_refused_by_name_before_a_run_is_begun(
    kind: str, dataset: Dataset, tmp_path: Path
) -> None:
    make, message = WRONG_WEIGHTS[kind]
    path = tmp_path / "weights.safetensors"
    make(path)
    with pytest.raises(DataError, match=message) as caught:
        trained(dataset, tmp_path / "run", weights=str(path), **FEW)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrapped", HOSTILE)
def test_a_pickle_as_weights_is_refused_and_not_run(
    wrapped: str, dataset: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "model.pth"
    path.write_bytes(HOSTILE[wrapped](Payload(tmp_path / "owned")))
    with pytest.raises(DataError, match="not a readable safetensors file"):
        trained(dataset, tmp_path / "run", weights=str(path), **FEW)
    assert not (tmp_path / "owned").exists()


def test_weights_that_are_not_finite_end_the_run_with_the_names_of_images(
    dataset: Dataset, tmp_path: Path
) -> None:
    tensors = file_of("tiny", 3, tmp_path / "weights.safetensors")
    name = "roi_heads.box_predictor.cls_score.weight"
    tensors[name] = torch.full_like(tensors[name], torch.nan)
    save_file(tensors, tmp_path / "weights.safetensors")
    with pytest.raises(DataError, match=r"not finite at step 0, in the batch of \d\.png, \d\.png"):
        trained(dataset, tmp_path / "run", weights=str(tmp_path / "weights.safetensors"), **FEW)
    assert not (tmp_path / "run" / "model.safetensors").exists()


def interrupt_training(dataset: Dataset, out: Path, **changes: Any) -> Path:
    """Stop a run after its first step; its checkpoint."""

    def stop(line: dict[str, Any]) -> None:
        if line.get("step") == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(dataset, out, replace(QUICK, **FEW | changes), log=stop)
    assert (out / "checkpoint.pt").is_file()
    return out / "checkpoint.pt"


@pytest.mark.parametrize("wrapped", HOSTILE)
def test_a_hostile_checkpoint_is_refused_and_not_run(
    wrapped: str, dataset: Dataset, tmp_path: Path
) -> None:
    checkpoint = interrupt_training(dataset, tmp_path / "run")
    checkpoint.write_bytes(HOSTILE[wrapped](Payload(tmp_path / "owned")))
    with pytest.raises(DataError, match="more than tensors and plain values") as caught:
        trained(dataset, tmp_path / "run", resume=True, **FEW)
    assert str(checkpoint) in str(caught.value)
    assert "weights_only" not in str(caught.value)  # torch tells how to run it all the same
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04", b"not a checkpoint at all", None],
    ids=["empty", "a mere beginning", "text", "truncated"],
)
def test_a_broken_checkpoint_is_refused_by_name(
    content: bytes | None, dataset: Dataset, tmp_path: Path
) -> None:
    checkpoint = interrupt_training(dataset, tmp_path / "run")
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[:-2000] if content is None else content)
    with pytest.raises(
        DataError, match=r"not a readable checkpoint: .+; restore the right file"
    ) as caught:
        trained(dataset, tmp_path / "run", resume=True, **FEW)
    assert str(checkpoint) in str(caught.value)
    checkpoint.write_bytes(whole)
    ensure_sound(trained(dataset, tmp_path / "run", resume=True, **FEW)[0])


def change_tensors(path: Path, **changes: Any) -> None:
    state = torch.load(path, weights_only=True)
    torch.save({name: value for name, value in (state | changes).items() if value != ()}, path)


def of_other_classes(path: Path, folder: Path) -> None:
    other = drawn(folder / "data", BOXES, labels=("one", "two"))
    path.write_bytes(interrupt_training(other, folder / "run").read_bytes())


def of_another_network(path: Path, folder: Path) -> None:
    change_tensors(path, network={"conv1.weight": torch.zeros(3)})


FOREIGN: dict[str, Callable[[Path, Path], object]] = {
    "of other classes": of_other_classes,
    "of another network": of_another_network,
    "without a network": lambda path, folder: change_tensors(path, network=()),
    "with a number for a network": lambda path, folder: change_tensors(path, network=5),
    "with a number for weights": lambda path, folder: change_tensors(path, network={"a": 5}),
    "with a number for a method": lambda path, folder: change_tensors(path, method=5),
    "without a ledger": lambda path, folder: change_tensors(path, ledger=()),
    "a mere tensor": lambda path, folder: torch.save(torch.zeros(3), path),
    "weights alone": lambda path, folder: torch.save(build("tiny", 3).network.state_dict(), path),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_checkpoint_of_something_else_is_refused_by_name(
    kind: str, dataset: Dataset, tmp_path: Path
) -> None:
    checkpoint = interrupt_training(dataset, tmp_path / "run")
    whole = checkpoint.read_bytes()
    FOREIGN[kind](checkpoint, tmp_path / "other")
    with pytest.raises(
        DataError, match=r"not a checkpoint of this run.*start the run from the beginning"
    ) as caught:
        trained(dataset, tmp_path / "run", resume=True, **FEW)
    assert str(checkpoint) in str(caught.value)
    checkpoint.write_bytes(whole)  # nothing was harmed by the attempt
    ensure_sound(trained(dataset, tmp_path / "run", resume=True, **FEW)[0])


def test_a_checkpoint_of_another_version_is_refused_with_what_it_lacks(
    dataset: Dataset, tmp_path: Path
) -> None:
    few = FEW | {"method": "mend"}
    checkpoint = interrupt_training(dataset, tmp_path / "run", method="mend")
    whole = checkpoint.read_bytes()
    method = torch.load(checkpoint, weights_only=True)["method"]
    change_tensors(
        checkpoint, method={name: held for name, held in method.items() if name != "border"}
    )
    with pytest.raises(
        DataError, match=r"method has no border.*another version.*start the run from the beginning"
    ) as why:
        trained(dataset, tmp_path / "run", resume=True, **few)
    assert str(checkpoint) in str(why.value)
    checkpoint.write_bytes(whole)
    ensure_sound(trained(dataset, tmp_path / "run", resume=True, **few)[0])


def test_resuming_with_another_detector_or_dataset_is_refused_with_what_differs(
    dataset: Dataset, tmp_path: Path
) -> None:
    interrupt_training(dataset, tmp_path / "run")
    with pytest.raises(UsageError, match=r"(?s)other settings.*detector: 'tiny', now 'mobilenet"):
        trained(
            dataset,
            tmp_path / "run",
            resume=True,
            detector="mobilenet_v3",
            **FEW,
        )
    for other in (
        drawn(tmp_path / "data", BOXES, labels=("disc", "square")),
        drawn(tmp_path / "data", [*BOXES, BOXES[0]]),
    ):
        with pytest.raises(DataError, match="the data differ from those that the run started with"):
            trained(other, tmp_path / "run", resume=True, **FEW)
    ensure_sound(trained(dataset, tmp_path / "run", resume=True, **FEW)[0])
