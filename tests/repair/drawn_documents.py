"""Datasets of many looks for hypothesis: small, valid, and written in ways people write them."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from PIL import Image

LABELS = ("van", "truck", "Stra\N{LATIN SMALL LETTER SHARP S}enbahn")
SIDE = 64  # pixels
COORDINATES = st.tuples(
    st.integers(0, 80), st.integers(0, 80), st.integers(8, 120), st.integers(8, 120)
).map(lambda box: (box[0] / 4, box[1] / 4, (box[0] + box[2]) / 4, (box[1] + box[3]) / 4))
ANNOTATION = st.tuples(st.integers(0, 1), st.integers(0, len(LABELS) - 1), COORDINATES)
ANNOTATIONS = st.lists(ANNOTATION, min_size=1, max_size=8)
Annotation = tuple[int, int, tuple[float, float, float, float]]  # image, label, box


def put_images(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (SIDE, SIDE)).save(path, compress_level=1)


@st.composite
def coco_texts(draw: st.DrawFn, annotations: list[Annotation]) -> bytes:
    """A COCO document in one of several layouts, with keys that mean nothing to boxmend."""
    entries = []
    first = draw(st.sampled_from([1, 7, 10**12]))
    for k, (image, label, (x1, y1, x2, y2)) in enumerate(annotations):
        box: list[Any] = [x1, y1, x2 - x1, y2 - y1]
        if draw(st.booleans()):
            box = [int(side) if side == int(side) else side for side in box]
        entry = {"id": first + k, "image_id": image, "category_id": 3 * label + 1, "bbox": box}
        extras = {
            "area": (x2 - x1) * (y2 - y1),
            "iscrowd": 0,
            "segmentation": draw(st.sampled_from([[], [[1, 2, 3, 4.50, 5, 6]]])),
            "boxmend": draw(st.sampled_from([{}, {"confidence": 0.1, "mine": [1]}, None])),
            "note": draw(st.sampled_from(["}", '"', "\u2603", {"a": {"id": 9}}])),
        }
        chosen = draw(st.lists(st.sampled_from(sorted(extras)), unique=True))
        entry |= {key: extras[key] for key in chosen}
        keys = draw(st.permutations(list(entry)))
        entries.append({key: entry[key] for key in keys})
    document = {
        "info": {"}": [1, 2.50]},
        "images": [
            {"id": k, "file_name": f"{k}.png", "width": SIDE, "height": SIDE} for k in (0, 1)
        ],
        "categories": [{"id": 3 * k + 1, "name": name} for k, name in enumerate(LABELS)],
    }
    where = draw(st.integers(0, 3))
    members = list(document.items())
    members.insert(where, ("annotations", entries))
    indent = draw(st.sampled_from([None, 0, 2, "\t"]))
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    is_ascii = draw(st.booleans())
    text = json.dumps(dict(members), indent=indent, separators=separators, ensure_ascii=is_ascii)
    return text.encode() + draw(st.sampled_from([b"", b"\n", b"\r\n"]))


@st.composite
def voc_texts(draw: st.DrawFn, annotations: list[Annotation], image: int) -> bytes:
    """The VOC document of one image in one of several layouts and encodings."""
    line, tab = draw(st.sampled_from([("\n", "\t"), ("\r\n", "  "), ("", "")]))
    encoding = draw(st.sampled_from(["utf-8", "latin-1"]))
    head = (
        draw(st.sampled_from(["", '<?xml version="1.0"?>' + line]))
        if encoding == "utf-8"
        else (f'<?xml version="1.0" encoding="iso-8859-1"?>{line}')
    )
    objects = []
    for _, label, (x1, y1, x2, y2) in (
        annotation for annotation in annotations if annotation[0] == image
    ):
        corners = {"xmin": x1 + 1, "ymin": y1 + 1, "xmax": x2, "ymax": y2}
        leaves = [
            f"<{tag}>{value:g}</{tag}>" if draw(st.booleans()) else f"<{tag}> {value:.3f}\n</{tag}>"
            for tag, value in corners.items()
        ]
        box = f"<bndbox>{''.join(line + 3 * tab + leaf for leaf in leaves)}</bndbox>"
        elements = [f"<name>{LABELS[label]}</name>", box]
        elements += draw(
            st.lists(
                st.sampled_from(
                    ["<pose>Left</pose>", "<difficult>0</difficult>", "<!-- </object> -->"]
                ),
                unique=True,
            )
        )
        elements += draw(st.sampled_from([[], ["<boxmend/>"], ["<boxmend><a>1</a></boxmend>"]]))
        inner = "".join(line + 2 * tab + one for one in draw(st.permutations(elements)))
        objects.append(f"{line}{tab}<object>{inner}{line}{tab}</object>")
    size = f"<size><width>{SIDE}</width><height>{SIDE}</height><depth>1</depth></size>"
    text = f"{head}<annotation><filename>{image}.png</filename>{size}{''.join(objects)}"
    return f"{text}{line}</annotation>{line}".encode(encoding)


@st.composite
def yolo_texts(draw: st.DrawFn, annotations: list[Annotation], image: int) -> bytes:
    """The label file of one image, with blanks and digits as they come."""
    lines = []
    for _, label, (x1, y1, x2, y2) in (
        annotation for annotation in annotations if annotation[0] == image
    ):
        centre = [(x1 + x2) / 2 / SIDE, (y1 + y2) / 2 / SIDE, (x2 - x1) / SIDE, (y2 - y1) / SIDE]
        digits = draw(st.sampled_from(["g", ".10f"]))
        blank = draw(st.sampled_from([" ", "\t", "  "]))
        end = draw(st.sampled_from(["\n", "\r\n", "  \n", "\n\n"]))
        lines.append(blank.join([str(label), *(f"{one:{digits}}" for one in centre)]) + end)
    return "".join(lines).encode()


@st.composite
def datasets(draw: st.DrawFn, format: str) -> tuple[list[Annotation], dict[str, bytes]]:
    """Annotations, and the files of a dataset that holds them."""
    annotations = sorted(draw(ANNOTATIONS), key=lambda one: one[0])
    if format == "coco":
        return annotations, {"instances_train.json": draw(coco_texts(annotations))}
    if format == "voc":
        documents = {f"Annotations/{k}.xml": draw(voc_texts(annotations, k)) for k in (0, 1)}
        return annotations, documents | {"ImageSets/Main/train.txt": b"0\r\n1 \n"}
    labels = {f"labels/train/{k}.txt": draw(yolo_texts(annotations, k)) for k in (0, 1)}
    names = ", ".join(LABELS)
    yaml = f"train: images/train\nval: images/train  # the same\nnames: [{names}]\n"
    return annotations, labels | {"data.yaml": yaml.encode()}


def put(folder: Path, format: str, files: dict[str, bytes]) -> str:
    """Write the files and their images; the address of the dataset."""
    places = {"coco": "images", "voc": "JPEGImages", "yolo": "images/train"}
    put_images(*(folder / places[format] / f"{k}.png" for k in (0, 1)))
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return str(folder)
