"""The page in a folder of folds that says how to go on."""

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
    split=val conf=0.01 save_json=True project="$PWD/fold-$k" name=found exist_ok=True
  cp "fold-$k/found/predictions.json" "fold-$k/predictions.json"
done
```

`last.pt` is the last state; no image of the test part has had a say in it.

"""

PAGE = """\
# {k} folds

Each `fold-K` has two datasets, `train` and `test`. The test parts together are all images, each
once. For every fold, train a detector on `train`, let it look at `test`, and put what it finds into
`fold-K/predictions.json`. Then no image is judged by a detector that has learnt its annotations.

{ultralytics}With boxmend:

```sh
for k in {numbers}; do
  boxmend train "fold-$k/train" --out "fold-$k/run"
  boxmend predict "fold-$k/run" "fold-$k/test" --out "fold-$k/predictions.json"
done
```

With code of your own: write a JSON list for each fold, low scores included (from 0.01 on), boxes in
pixels of the image as stored:

```json
[{{"file_name": "a.jpg", "category_name": "cat", "bbox": [x, y, width, height], "score": 0.87}}]
```

`predictions.csv` or `predictions.parquet` (columns image, x1, y1, x2, y2, label, score) and a
folder `labels/` of `class x y width height confidence` lines do as well.

Then, here:

```sh
boxmend audit {data} --predictions . --out ../audit
```

`folds.json` says which image is in the test part of which fold.
"""


def guide(k: int, format: str, addresses: Sequence[str]) -> str:
    """The page, with commands for the dataset at these addresses."""
    numbers = " ".join(map(str, range(k)))
    ultralytics = ULTRALYTICS.format(numbers=numbers) if format == "yolo" else ""
    data = " ".join(shlex.quote(os.path.abspath(one)) for one in addresses) or "DATA"
    text = PAGE.format(k=k, numbers=numbers, ultralytics=ultralytics, data=data)
    return escape_surrogates(text)
