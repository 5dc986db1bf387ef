"""VOC folders for tests: created from texts, read, and written to memory."""

from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from boxmend.data.dataset import Dataset
from boxmend.data.formats import voc
from boxmend.data.formats.reading import ReadOptions

PLAIN = """<annotation>
\t<folder>VOC2007</folder>
\t<filename>000001.jpg</filename>
\t<size><width>353</width><height>500</height><depth>3</depth></size>
\t<segmented>0</segmented>
\t<object>
\t\t<name>dog</name>
\t\t<pose>Left</pose>
\t\t<truncated>1</truncated>
\t\t<difficult>0</difficult>
\t\t<bndbox>
\t\t\t<xmin>48</xmin>
\t\t\t<ymin>240</ymin>
\t\t\t<xmax>195</xmax>
\t\t\t<ymax>371</ymax>
\t\t</bndbox>
\t</object>
\t<object>
\t\t<name>person</name>
\t\t<pose>Unspecified</pose>
\t\t<truncated>0</truncated>
\t\t<difficult>1</difficult>
\t\t<bndbox>
\t\t\t<xmin> 8.5 </xmin>
\t\t\t<ymin>12.25</ymin>
\t\t\t<xmax>352</xmax>
\t\t\t<ymax>498.00</ymax>
\t\t</bndbox>
\t</object>
</annotation>
"""


def voc_folder(
    root: Path,
    documents: Mapping[str, str | bytes],
    lists: Mapping[str, str | bytes] | None = None,
) -> Path:
    files = {f"Annotations/{name}.xml": content for name, content in documents.items()}
    files |= {f"ImageSets/Main/{name}.txt": content for name, content in (lists or {}).items()}
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def read(root: Path, split: str | None = None, images: Path | None = None) -> Dataset:
    return voc.read(root, split, ReadOptions(images))


def save_to_memory(dataset: Dataset) -> dict[str, bytes]:
    return {
        document.path: b"".join(document.pieces)
        for document in voc.build_documents(dataset, "flag")
    }


def read_back(dataset: Dataset, root: Path) -> Dataset:
    for name, content in save_to_memory(dataset).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return read(root)


def objects(*texts: str) -> str:
    return f"<annotation>{''.join(f'<object>{text}</object>' for text in texts)}</annotation>"


def corners(xmin: object, ymin: object, xmax: object, ymax: object) -> str:
    return (
        f"<bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin>"
        f"<xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox>"
    )


DOG = f"<name>dog</name>{corners(1, 2, 3, 4)}"
CAT = f"<name>cat</name>{corners(5, 6, 7, 8)}"


def kinds(dataset: Dataset) -> list[str]:
    return [finding.kind for finding in dataset.findings]


def image(path: Path, size: tuple[int, int] = (4, 3)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)
    return path
