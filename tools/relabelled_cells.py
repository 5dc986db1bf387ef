"""Make a dataset with real annotation errors: blood cells, as published, and annotated again.

    git clone https://github.com/Shenggan/BCCD_Dataset
    git clone https://github.com/lugan113/TXL-PBC_Dataset
    python tools/relabelled_cells.py BCCD_Dataset TXL-PBC_Dataset --out cells

BCCD has 364 photographs of blood smears. TXL-PBC contains 221 of them with new annotations. `cells`
holds every photograph once and three COCO files:

    cells:all         the 364 photographs with the published annotations
    cells:original    the 221 photographs of both datasets with the published annotations
    cells:relabelled  the same 221 photographs with the new annotations

The tool pairs photographs by the bytes of their files, since TXL-PBC renamed them. It downloads
nothing. `docs/real-noise.md` uses the dataset.
"""

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.errors import BoxmendError, UsageError

DECIMALS = 3  # of coordinates, in pixels


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bccd", type=Path, help="a copy of the repository BCCD_Dataset")
    parser.add_argument("txl", type=Path, help="a copy of the repository TXL-PBC_Dataset")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    asked = parser.parse_args()
    try:
        published = load(str(asked.bccd / "BCCD"))
        relabelled = load(str(asked.txl / "TXL_PBC" / "data.yaml"))
        documents = make_documents(published, relabelled)
        write(documents, published, asked.out)
    except BoxmendError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    for name, document in documents.items():
        counts = len(document["images"]), len(document["annotations"])
        print(f"{asked.out}:{name}  {counts[0]} images, {counts[1]} annotations")
    return 0


def make_documents(published: Dataset, relabelled: Dataset) -> dict[str, dict[str, Any]]:
    """Return the three COCO documents by name.

    A UsageError says so if the datasets share no photograph, or differ in their classes.
    """
    if set(published.label_names) != set(relabelled.label_names):
        names = [", ".join(sorted(each.label_names)) for each in (published, relabelled)]
        raise UsageError(f"the datasets differ in their classes: {names[0]} and {names[1]}")
    rows_by_digest = {digest(path): row for row, path in enumerate(relabelled.images.paths)}
    pairs = [
        (row, rows_by_digest[result])
        for row, path in enumerate(published.images.paths)
        if (result := digest(path)) in rows_by_digest
    ]
    if not pairs:
        raise UsageError(
            "the two datasets have no photograph in common: are these the right folders?"
        )
    names = [Path(name).name for name in published.images.file_names]
    ids = {name: number for number, name in enumerate(sorted(names), 1)}
    chosen = {
        "all": (published, dict(enumerate(names))),
        "original": (published, {old: names[old] for old, _ in pairs}),
        "relabelled": (relabelled, {new: names[old] for old, new in pairs}),
    }
    return {
        name: make_document(dataset, file_names, ids, published.label_names)
        for name, (dataset, file_names) in chosen.items()
    }


def digest(path: str) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def make_document(
    dataset: Dataset,
    file_names: Mapping[int, str],
    ids: Mapping[str, int],
    label_names: Sequence[str],
) -> dict[str, Any]:
    """Return a COCO document of some images.

    `file_names` maps the rows of these images to their new names, `ids` the new names to image
    ids, and the ids of categories follow `label_names`.
    """
    images = [
        {
            "id": ids[name],
            "file_name": name,
            "width": int(dataset.images.widths[row]),
            "height": int(dataset.images.heights[row]),
        }
        for row, name in file_names.items()
    ]
    annotations: list[dict[str, Any]] = []
    for row, label, box in zip(dataset.image_rows, dataset.labels, dataset.boxes, strict=True):
        if int(row) not in file_names:
            continue
        x1, y1, x2, y2 = (round(float(side), DECIMALS) for side in box)
        sides = [x1, y1, round(x2 - x1, DECIMALS), round(y2 - y1, DECIMALS)]
        annotations.append(
            {
                "id": len(annotations) + 1,
                "image_id": ids[file_names[int(row)]],
                "category_id": 1 + label_names.index(dataset.label_names[label]),
                "bbox": sides,
                "area": round(sides[2] * sides[3], DECIMALS),
                "iscrowd": 0,
            }
        )
    categories = [{"id": number, "name": name} for number, name in enumerate(label_names, 1)]
    return {"images": images, "annotations": annotations, "categories": categories}


def write(documents: Mapping[str, dict[str, Any]], published: Dataset, out: Path) -> None:
    """Write the documents and copy the photographs into a new folder."""
    if out.exists():
        raise UsageError(f"{out} exists already: choose a new folder for --out")
    (out / "images").mkdir(parents=True)
    for path in published.images.paths:
        shutil.copyfile(path, out / "images" / Path(path).name)
    for name, document in documents.items():
        (out / f"instances_{name}.json").write_text(json.dumps(document))


if __name__ == "__main__":
    sys.exit(main())
