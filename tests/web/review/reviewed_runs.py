"""Audited runs on disk, made by hand: drawn images, and a few fixes whose every number is known."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Box
from tests.fabricated_runs import Fix, audit_run, dataset_of, images_of, table_of

NAMES = ("van", "</script><img src=x onerror=alert(1)>", "bus")
SIZE = (200, 150)
BOX: Box = (40, 30, 120, 100)
MOVED: Box = (50, 40, 130, 110)


def fix(
    kind: Kind, row: int = UNKNOWN, *, p_wrong: float = 0.9, p_fix: float = 0.8, **others: Any
) -> Fix:
    """One fix; `others` are fields of `Fix`."""
    gain = 0.25 if kind == Kind.BAD_BOX else 0.0
    result = {"reason": "detections say otherwise", "iou_gain": gain, **others}
    return Fix("", kind, row, p_fix, p_wrong=p_wrong, **result)


FIXES = (
    fix(Kind.WRONG_LABEL, 0, label=2, p_wrong=0.99, p_fix=0.98, reason="a bus, by <b>5</b>"),
    fix(Kind.WRONG_LABEL, 2, label=2, p_wrong=0.95, p_fix=0.97),
    fix(Kind.BAD_BOX, 4, box=BOX, p_wrong=0.9, p_fix=0.96),
    fix(Kind.MISSING, image=3, label=2, box=BOX, p_wrong=0.8, p_fix=0.7),
    fix(Kind.SPURIOUS, 8, p_wrong=0.7, p_fix=0.6),
    fix(Kind.DUPLICATE, 10, p_wrong=0.6, p_fix=0.55, kept=11),
    fix(Kind.WRONG_LABEL, 12, label=0, p_wrong=0.5, p_fix=0.4),
    fix(Kind.WRONG_LABEL, 14, label=2, p_wrong=0.4, p_fix=0.3),
)
FILES = (*(f"{number}.png" for number in range(7)), "quo'te & <i>.png")


def number_fixes(fixes: Sequence[Fix]) -> list[Fix]:
    """The fixes with the names f0, f1 ..."""
    return [replace(one, id=f"f{number}") for number, one in enumerate(fixes)]


def fixes_of(fixes: Sequence[Fix]) -> Fixes:
    """The fixes as columns, of a dataset with a hundred vans."""
    vans = dataset_of(images_of(["0.png"]), [0] * 100, [BOX] * 100, [0] * 100, NAMES)
    return table_of(vans, number_fixes(fixes))


def plain_dataset(folder: Path) -> Dataset:
    """Two annotations an image; every one is a van, a hostile one or a bus."""
    folder.mkdir(parents=True)
    for number, name in enumerate(FILES):
        image = Image.new("RGB", SIZE, (40 + 20 * (number % 8), 90, 120))
        image.paste((200, 180, 60), (40, 30, 120, 100))
        image.save(folder / name, "PNG")
    labels = [0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 2, 2, 2, 1, 0, 1]
    boxes = [MOVED if row in (4, 8, 10) else BOX for row in range(16)]
    return dataset_of(images_of(FILES, folder, SIZE), np.arange(16) // 2, boxes, labels, NAMES)


def plain_run(folder: Path, fixes: Sequence[Fix] = FIXES) -> Path:
    """An audit with these fixes, by default one an image."""
    plain_dataset(folder / "pictures").save(folder / "data", format="coco")
    return audit_run(folder / "run", str(folder / "data"), number_fixes(fixes))
