"""Reading and writing of a detector's weights: safetensors files with torchvision's key names.

A file contains either a backbone (`conv1.weight`, `features.0.0.weight`, `stem.0.weight`) or a
whole detector (`backbone.body.conv1.weight`, `roi_heads...`).
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn
from torchvision.models import WeightsEnum

from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.digests import (
    drop_digest,
    verify_safetensors,
    warn_no_digest,
    write_safetensors_with_digest,
)
from boxmend.data.files.limits import ensure_within_limit
from boxmend.data.files.reading import open_file
from boxmend.detector.faster_rcnn import Detector
from boxmend.detector.numbers import DetectorNumbers
from boxmend.errors import DataError

HEADER_LENGTH_BYTES = 8  # a safetensors file begins with the length of its header
STRIDE_KEY = "stride_in_1x1"
CLASS_SCORES = "cls_score.weight"  # of any head
CLASSIFIERS = ("fc.", "classifier.")  # of ImageNet networks; a backbone has none
COUNTER = ".num_batches_tracked"  # of trainable normalisations; not used here
MAX_KEYS_IN_MESSAGE = 3
OWN_KEYS = {"detector", "label_names"}  # metadata that only boxmend writes
REMEDY = "restore the file from a copy, or train again"
TWIN = "twin."
HEADS = ("box_heads", "classifiers", "has_spread")
HEAD_COUNTS = ("1", "2", "3")  # as in the metadata

log = logging.getLogger(__name__)


def load_file(detector: Detector, path: Path) -> None:
    """Load a detector, or its backbone, from a file; raise a DataError if they do not match."""
    tensors, metadata = read_file(path)
    load_tensors(detector, tensors, metadata, str(path))


def load_tensors(
    detector: Detector, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], source: str
) -> None:
    """Load tensors that were read from `source` into a detector or its backbone.

    `stride_in_1x1` in the metadata moves the strides of a ResNet's stages to their first
    convolution.
    """
    stored = {key: value for key, value in tensors.items() if not key.endswith(COUNTER)}
    if any(key.startswith("backbone.") for key in stored):
        _check_classes(detector, stored, source)
        _load(detector.network, stored, _describe_mismatch(detector, metadata, source))
    else:
        target = _part_without_pyramid(detector)
        stored = {
            key.removeprefix("features."): value
            for key, value in stored.items()
            if not key.startswith(CLASSIFIERS)
        }
        _load(target, stored, f"{source}: not a backbone {detector.name}")
    set_strides(detector, in_1x1=metadata.get(STRIDE_KEY) == "true", source=source)


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read all tensors and the metadata of a safetensors file."""
    with _open_weights(path) as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # no mapping
        return tensors, drop_digest(file.metadata() or {})


def read_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of a safetensors file."""
    with _open_weights(path) as file:
        return drop_digest(file.metadata() or {})


def ensure_num_labels(path: Path, num_labels: int) -> None:
    """Raise a DataError if a file of a whole detector has another number of classes.

    This reads only the header, so that a false number of classes never builds a large network.
    """
    with _open_weights(path) as file:
        keys = [key for key in file.keys() if key.endswith(CLASS_SCORES)]  # noqa: SIM118  # no mapping
        shapes = [file.get_slice(key).get_shape() for key in keys]
    if not shapes:
        raise DataError(f"{path}: contains no detector (there is no {CLASS_SCORES})")
    for number in {shape[0] - 1 for shape in shapes if shape} - {num_labels}:
        raise DataError(f"{path}: a detector of {number} classes, not {num_labels}")


def _ensure_small_header(path: Path) -> None:
    """Raise a DataError if a file, or the header that it announces, is too large."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        ensure_within_limit("model_bytes", size, path)
        header = int.from_bytes(file.read(HEADER_LENGTH_BYTES), "little")
        if header < size:  # otherwise safetensors reports that the file is invalid
            ensure_within_limit("model_header_bytes", header, path, "its header")


@contextmanager
def _open_weights(path: Path) -> Iterator[Any]:
    try:
        _ensure_small_header(path)
        has_digest = verify_safetensors(path, REMEDY)
        with safe_open(path, framework="pt") as file:
            if not has_digest and (file.metadata() or {}).keys() >= OWN_KEYS:
                warn_no_digest(path)
            yield file
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such weight file") from error
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path}: not a readable safetensors file: {error}") from error


def save(detector: Detector, path: Path, more: Mapping[str, str] | None = None) -> None:
    """Write the whole detector to a safetensors file, atomically, without a twin.

    `more` are metadata in addition to those of `describe`.
    """
    tensors = {key: value.contiguous() for key, value in tensors_without_twin(detector).items()}
    with open_atomic(path) as file:
        write_safetensors_with_digest(
            to_bytes(tensors, {**(more or {}), **describe(detector)}), file
        )


def tensors_without_twin(detector: Detector) -> dict[str, Tensor]:
    """Return the state dict of a detector without its twin."""
    state: dict[str, Tensor] = detector.network.state_dict()
    return {key: value for key, value in state.items() if not key.startswith(TWIN)}


def describe(detector: Detector) -> dict[str, str]:
    """Return the metadata to store with a detector's state dict."""
    numbers, defaults = asdict(detector.numbers), asdict(DetectorNumbers())
    heads = {key: str(int(numbers[key])) for key in HEADS if numbers[key] != defaults[key]}
    return {
        "detector": detector.name,
        "num_labels": str(detector.num_labels),
        STRIDE_KEY: str(_has_strides_in_1x1(detector)).lower(),
        **heads,
    }


def with_stored_heads(
    numbers: DetectorNumbers, metadata: Mapping[str, str], source: str
) -> DetectorNumbers:
    """Return the numbers with the heads in the metadata of a file, which `describe` wrote."""
    heads: dict[str, Any] = {}
    for key in HEADS:
        text = metadata.get(key)
        if text is not None:
            if text not in HEAD_COUNTS:
                raise DataError(f"{source}: {key} in its metadata is {text!r:.80}; {REMEDY}")
            heads[key] = bool(int(text)) if key == "has_spread" else int(text)
    return replace(numbers, **heads)


def download_weights(weights: WeightsEnum) -> dict[str, Tensor]:
    """Read torchvision's weights from torch's cache, after downloading them if needed."""
    log.info("loading %s; downloading it to %s if needed", weights.url, torch.hub.get_dir())
    try:
        tensors: dict[str, Tensor] = weights.get_state_dict(progress=False, check_hash=True)
    except (URLError, OSError, RuntimeError) as error:
        raise DataError(
            f"{weights.url}: the download failed: {error}; pass a safetensors file with "
            "--weights, or start from random weights with --weights none"
        ) from error
    return tensors


def set_strides(detector: Detector, *, in_1x1: bool, source: str) -> None:
    """Put the stride of stages 2 to 4 into their first 1x1 convolution, or into the 3x3 one."""
    blocks = _striding_bottlenecks(detector)
    if in_1x1 and not blocks:
        raise DataError(f"{source}: has {STRIDE_KEY}, but {detector.name} has no such convolution")
    for block in blocks:
        block.conv1.stride, block.conv2.stride = ((2, 2), (1, 1)) if in_1x1 else ((1, 1), (2, 2))


def _has_strides_in_1x1(detector: Detector) -> bool:
    return any(block.conv1.stride == (2, 2) for block in _striding_bottlenecks(detector))


def _striding_bottlenecks(detector: Detector) -> list[Any]:
    body = getattr(detector.network.backbone, "body", {})
    firsts = [body[layer][0] for layer in ("layer2", "layer3", "layer4") if layer in body]
    return [block for block in firsts if hasattr(block, "conv3")]


def _part_without_pyramid(detector: Detector) -> nn.Module:
    """Return the part that a backbone file contains: everything but the feature pyramid."""
    backbone: nn.Module = detector.network.backbone
    body: nn.Module = getattr(backbone, "body", backbone)
    return body


def _check_classes(detector: Detector, stored: Mapping[str, Tensor], source: str) -> None:
    numbers = {value.shape[0] - 1 for key, value in stored.items() if key.endswith(CLASS_SCORES)}
    for number in numbers - {detector.num_labels}:
        raise DataError(f"{source}: a detector of {number} classes, not {detector.num_labels}")


def _load(target: nn.Module, stored: Mapping[str, Tensor], message: str) -> None:
    expected = {
        key: value for key, value in target.state_dict().items() if not key.endswith(COUNTER)
    }
    missing = sorted(expected.keys() - stored.keys())
    unknown = sorted(stored.keys() - expected.keys())
    unlike = [
        f"{key} is {list(stored[key].shape)} instead of {list(expected[key].shape)}"
        for key in sorted(expected.keys() & stored.keys())
        if stored[key].shape != expected[key].shape
    ]
    differences = [
        *([f"lacks {_list_keys(missing)}"] if missing else []),
        *([f"has the unknown {_list_keys(unknown)}"] if unknown else []),
        *unlike[:MAX_KEYS_IN_MESSAGE],
    ]
    if differences:
        raise DataError(f"{message}: {'; '.join(differences)}")
    target.load_state_dict(dict(stored), strict=False)  # in the target's own precision


def _describe_mismatch(detector: Detector, metadata: Mapping[str, str], source: str) -> str:
    """Return the message for a detector that does not match; methods need different heads."""
    stored = with_stored_heads(DetectorNumbers(), metadata, source)
    own = detector.numbers
    numbers = [(key, int(getattr(stored, key)), int(getattr(own, key))) for key in HEADS]
    unlike = [
        f"{key} {has} instead of {expected}" for key, has, expected in numbers if has != expected
    ]
    if not unlike:
        return f"{source}: not a detector {detector.name}"
    return (
        f"{source}: a detector of another method ({', '.join(unlike)}); pass one of the same "
        "method, or the weights of a backbone"
    )


def _list_keys(keys: list[str]) -> str:
    more = len(keys) - MAX_KEYS_IN_MESSAGE
    return ", ".join(keys[:MAX_KEYS_IN_MESSAGE]) + (f" and {more} more" if more > 0 else "")
