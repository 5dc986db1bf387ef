"""Score what a `Mender` makes of known noise on photographs, without a training.

Every update gets the same detections: those of detectors that were not trained on these images, on
clean annotations. A training on noisy annotations gives worse ones, so the figures are an upper
bound. They are those of `apply`: wrong labels and mean IoU before and after.

    python benchmarks/mender_on_voc.py VOC2007:trainval results/voc320-out-of-fold.parquet
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from boxmend import Dataset, Mender, NoiseSettings, Predictions, load
from boxmend.data.boxes import compute_iou
from boxmend.data.noise import disturb
from boxmend.repair.from_visits import changes_from_ledger

CELLS = ((0.4, 0.4), (0.2, 0.2), (0.4, 0.0), (0.0, 0.4), (0.0, 0.0))  # label noise, box noise
UPDATES = 4


def read_detections(path: Path) -> Predictions:
    """Return the detections of a table with image, label, score and the sides of boxes."""
    table = pq.read_table(path)
    boxes = np.stack([table[side].to_numpy() for side in ("x1", "y1", "x2", "y2")], axis=1)
    columns = table["image"].to_pylist(), boxes, table["label"].to_pylist()
    return Predictions(*columns, table["score"].to_numpy())


def score(clean: Dataset, predictions: Predictions, cell: tuple[float, float], seed: int) -> str:
    """Mend a noisy copy of a dataset; return a row of the table."""
    label_noise, box_noise = cell
    settings = NoiseSettings(
        labels=f"symmetric:{label_noise}" if label_noise else None,
        boxes=f"uniform:{box_noise}" if box_noise else None,
        seed=seed,
    )
    noisy = disturb(clean, settings).dataset
    with tempfile.TemporaryDirectory() as folder:
        mender = Mender(noisy, out=Path(folder) / "run")
        for number in range(UPDATES):
            mender.annotations()
            update = mender.update(number, predictions)
        changes = changes_from_ledger(mender.finish(), noisy)
    labels, boxes = noisy.labels.copy(), noisy.boxes.copy()
    labels[changes.rows], boxes[changes.rows] = changes.labels, changes.boxes
    counted = ~clean.is_ignored
    wrong = [float((each != clean.labels)[counted].mean()) for each in (noisy.labels, labels)]
    iou = [float(compute_iou(each, clean.boxes)[counted].mean()) for each in (noisy.boxes, boxes)]
    return (
        f"| {label_noise:.0%}, {box_noise:.0%} | {wrong[0]:.1%} | {wrong[1]:.1%} "
        f"| {iou[0]:.3f} | {iou[1]:.3f} | {update.box_noise.value:.2f} |"
    )


def main() -> None:
    """Parse the options and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("detections", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    clean, predictions = load(options.data), read_detections(options.detections)
    print("| noise | wrong labels | mended | mean IoU | mended | estimated box noise |")
    print("|---|---|---|---|---|---|")
    for cell in CELLS:
        print(score(clean, predictions, cell, options.seed))


if __name__ == "__main__":
    main()
