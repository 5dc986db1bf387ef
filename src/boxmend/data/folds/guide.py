"""The README of a folder of folds, with the commands of the next steps."""

import os
import shlex
from collections.abc import Sequence

from boxmend.data.files.text import escape_surrogates

ULTRALYTICS = """\
With Ultralytics:

```sh
for k in {numbers}; do
  yolo detect train data="$PWD/fold-$k/train/data.yaml" model=yolo11s.pt \\
    project="$PWD/fold-$k" name=training exist_ok=True
  yolo detect val data="$PWD/fold-$k/test/data.yaml" model="fold-$k/training/weights/last.pt" \\
    split=val conf=0.01 save_json=True project="$PWD/fold-$k" name=test-run exist_ok=True
  cp "fold-$k/test-run/predictions.json" "fold-$k/predictions.json"
done
```

`last.pt` is the state after the last epoch; images of the test part did not influence it.

"""

PAGE = """\
# {k} folds

Each `fold-K` has two datasets, `train` and `test`. Each image is in the test part of one fold. For
every fold, train a detector on `train`, run it on `test`, and write its detections to
`fold-K/predictions.json`. Then no detector predicts images whose annotations it was trained on.

{ultralytics}With boxmend:

```sh
for k in {numbers}; do
  boxmend train "fold-$k/train" --out "fold-$k/run"
  boxmend predict "fold-$k/run" "fold-$k/test" --out "fold-$k/predictions.json"
done
```

With your own code: write a JSON list for each fold, with low scores (from 0.01) included and boxes
in pixels of the image as stored:

```json
[{{"file_name": "a.jpg", "category_name": "cat", "bbox": [x, y, width, height], "score": 0.87}}]
```

`predictions.csv` or `predictions.parquet` (columns image, x1, y1, x2, y2, label, score) and a
folder `labels/` of `class x y width height confidence` lines work as well.

Then run in this folder:

```sh
boxmend audit {data} --predictions . --out ../audit
```

`folds.json` says which image is in the test part of which fold.
"""


def compose_guide(k: int, format: str, addresses: Sequence[str]) -> str:
    """Return the text of the README, with commands for the dataset at these addresses."""
    numbers = " ".join(map(str, range(k)))
    ultralytics = ULTRALYTICS.format(numbers=numbers) if format == "yolo" else ""
    data = " ".join(shlex.quote(os.path.abspath(address)) for address in addresses) or "DATA"
    text = PAGE.format(k=k, numbers=numbers, ultralytics=ultralytics, data=data)
    return escape_surrogates(text)
