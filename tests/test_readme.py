"""What the README says, done: its commands, its example, its links."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend.cli import COMMANDS, run
from tests import ROOT

README = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", page.read_text())
    missing = [
        (link, anchor)
        for link, anchor in links
        if anchor not in _anchors(page.parent / link if link else page)
    ]
    assert missing == []


def _anchors(page: Path) -> set[str]:
    """What headings are called in addresses: small letters, dashes for spaces, no signs."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}


def test_the_peers_have_pages_that_are_checked() -> None:
    names = {str(page.relative_to(ROOT)) for page in PAGES}
    peers = ("co-teaching", "note-rcnn", "ca-bbc", "oa-mil", "disco")
    assert {f"docs/methods/{name}.md" for name in peers} <= names


def test_the_make_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_every_command_of_the_table_exists_and_every_command_is_in_it() -> None:
    named = set(re.findall(r"^\| `boxmend ([a-z]+)", README, re.MULTILINE))
    assert named == set(COMMANDS)


def test_the_commands_of_the_table_run(tmp_path: Path) -> None:
    data = tmp_path / "toys"
    assert run(["synth", "--images", "10", "--out", str(data)]) == 0
    for line in re.findall(r"^\| `(boxmend (?:check|convert|noise)[^`]*)`", README, re.MULTILINE):
        text = line.replace("DATA…", f"{data}:train").replace("coco\\|voc\\|yolo", "voc")
        out = tmp_path / f"out-{len(text)}"
        assert run(shlex.split(text.replace("DIR", str(out)))[1:]) == 0, text


def test_the_python_example_changes_only_the_names_of_the_sofas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for year, name in (("VOC2007", "000001"), ("VOC2012", "2008_000001")):
        folder = tmp_path / year
        (folder / "Annotations").mkdir(parents=True)
        (folder / "ImageSets/Main").mkdir(parents=True)
        (folder / "ImageSets/Main/trainval.txt").write_text(f"{name}\n")
        objects = "".join(
            f"<object><name>{label}</name><bndbox><xmin>1</xmin><ymin>1</ymin>"
            "<xmax>9</xmax><ymax>9</ymax></bndbox></object>"
            for label in ("sofa", "chair")
        )
        text = f"<annotation><filename>{name}.jpg</filename>{objects}</annotation>"
        (folder / "Annotations" / f"{name}.xml").write_text(text)
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(example, {})
    for year, name in (("VOC2007", "000001"), ("VOC2012", "2008_000001")):
        before = (tmp_path / year / "Annotations" / f"{name}.xml").read_text()
        after = (tmp_path / "no-sofas" / year / "Annotations" / f"{name}.xml").read_text()
        assert after == before.replace("sofa", "chair")
    mended = boxmend.load(tmp_path / "no-sofas/VOC2007")
    assert np.array_equal(mended.boxes, [[0, 0, 9, 9]] * 2)
