"""A finished run made by hand, whose random model sees something everywhere, and images for it."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from boxmend.detector import Detector, build, save
from boxmend.runs import folder as runs
from boxmend.training.card import ModelCard

NAMES = ("disc", "square", "star")
NUMBERS = (7, 90, 3)
SIDE = 96
CARD = ModelCard("tiny", NAMES, NUMBERS, str(SIDE))


def lively_detector() -> Detector:
    torch.manual_seed(3)
    made = build("tiny", len(NAMES))
    with torch.no_grad():
        made.network.rpn.head.cls_logits.weight.mul_(8)
        made.network.roi_heads.box_predictor.cls_score.weight.mul_(6)
    made.network.eval()
    return made


def finished_run(folder: Path, card: ModelCard | None = CARD) -> Path:
    """A run's folder; without a card, as one whose model file tells no more than its detector."""
    facts = {"data": {"label_names": list(NAMES)}}
    run = runs.create(folder, {"image_size": str(SIDE), "detector": "tiny"}, facts)
    save(lively_detector(), folder / "model.safetensors", card.metadata() if card else None)
    run.finish({})
    return folder


def pixels(width: int, height: int, seed: int = 0) -> np.ndarray:
    cells = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    return np.asarray(Image.fromarray(cells).resize((width, height)))


def drawn(path: Path, width: int = SIDE, height: int = 64, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels(width, height, seed)).save(path)
    return path
