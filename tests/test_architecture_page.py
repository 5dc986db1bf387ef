"""The page about the architecture names packages, files and functions that exist."""

import pkgutil
import re
from pathlib import Path

import pytest

import boxmend
from tests import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCE = Path(boxmend.__file__).parent
PACKAGES = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file())
NAMES = sorted(set(re.findall(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`", PAGE)) - {"data.yaml"})
FILES = sorted(set(re.findall(rf"`((?:{'|'.join(PACKAGES)})/[\w/]+\.py)`", PAGE)))
RECORDS = re.findall(r"\| `(\w+)` \| `([\w/]+\.py)` \|", PAGE)


@pytest.mark.parametrize("name", NAMES)
def test_a_function_that_is_named_exists(name: str) -> None:
    assert callable(pkgutil.resolve_name(f"boxmend.{name}"))


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_named_exists(file: str) -> None:
    assert (SOURCE / file).is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_row(package: str) -> None:
    assert f"\n| `{package}` |" in PAGE


@pytest.mark.parametrize(("record", "file"), RECORDS)
def test_a_record_is_defined_where_the_page_says(record: str, file: str) -> None:
    assert f"class {record}" in (SOURCE / file).read_text()


def test_an_annotation_has_at_most_five_records() -> None:
    assert 0 < len(RECORDS) <= 5


def test_training_can_be_followed_in_at_most_fifteen_files() -> None:
    walk = PAGE.split("### `boxmend train`")[1].split("###")[0]
    steps = re.findall(r"\| `([\w.]+)` \|", walk)
    files = {pkgutil.resolve_name(f"boxmend.{name}").__module__ for name in steps}
    assert f"These are {len(files)} files" in walk
    assert len(files) <= 15
