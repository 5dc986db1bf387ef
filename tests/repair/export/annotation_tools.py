"""Tools that people change boxes in, and what each exports then."""

import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.repair.export.exported_audits import submitted


class LabelStudio:
    """Label Studio, which exports JSON."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.changes: list[Callable[[dict[str, Any]], None]] = []

    def change(self, region: str, *, label: str | None = None, box: Any = None) -> None:
        def made(regions: dict[str, Any]) -> None:
            if region in regions and label is not None:
                regions[region]["value"]["rectanglelabels"] = [label]
            if region in regions and box is not None:
                x1, y1, x2, y2 = box
                sides = {"x": x1 / 2, "y": y1, "width": (x2 - x1) / 2, "height": y2 - y1}
                regions[region]["value"] |= sides

        self.changes.append(made)

    def delete(self, region: str) -> None:
        def made(regions: dict[str, Any]) -> None:
            regions.pop(region, None)

        self.changes.append(made)

    def draw(self) -> None:
        def made(regions: dict[str, Any]) -> None:
            if "annotation-0" in regions:
                regions["Dx_aB91ISN"] = regions["annotation-0"] | {"id": "Dx_aB91ISN"}

        self.changes.append(made)

    def exported(self) -> Path:
        def edit(_: str, regions: dict[str, Any]) -> None:
            for made in self.changes:
                made(regions)

        return submitted(self.out, self.out.parent / "project-1.json", edit)


class Cvat:
    """CVAT, which exports XML in a zip."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.tree = ElementTree.parse(out / "annotations.xml")
        meta = self.tree.getroot().find("meta")
        assert meta is not None
        ElementTree.SubElement(meta, "dumped").text = "2026-11-01 10:05:00.000000+00:00"

    def _find(self, region: str) -> tuple[ElementTree.Element, ElementTree.Element]:
        for image in self.tree.getroot().findall("image"):
            for box in image.findall("box"):
                if any(one.text == region for one in box):
                    return image, box
        raise LookupError(region)

    def change(self, region: str, *, label: str | None = None, box: Any = None) -> None:
        _, result = self._find(region)
        result.set("source", "semi-auto")
        if label is not None:
            result.set("label", label)
        for name, side in zip(("xtl", "ytl", "xbr", "ybr"), box or (), strict=False):
            result.set(name, f"{side:.2f}")

    def delete(self, region: str) -> None:
        image, box = self._find(region)
        image.remove(box)

    def draw(self) -> None:
        image, box = self._find("annotation-0")
        drawn = ElementTree.SubElement(image, "box", box.attrib)
        for one in box:
            text = "other" if one.get("name") == "status" else ""  # defaults of the labels
            ElementTree.SubElement(drawn, "attribute", one.attrib).text = text

    def exported(self) -> Path:
        path = self.out.parent / "task.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("annotations.xml", ElementTree.tostring(self.tree.getroot()))
        return path


Tool = LabelStudio | Cvat
TOOLS: dict[str, type[LabelStudio] | type[Cvat]] = {"label-studio": LabelStudio, "cvat": Cvat}
