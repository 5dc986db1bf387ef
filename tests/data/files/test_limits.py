"""Limits: their table, the variables that replace them, and their table in the docs."""

from pathlib import Path

import pytest

import boxmend
from boxmend.data.files.limits import (
    LIMITS,
    check_environment,
    describe_excess,
    ensure_within_limit,
    get_limit,
    variable_name,
)
from boxmend.errors import DataError, UsageError
from tests import ROOT

DOCS = ROOT / "docs" / "reliability.md"


def test_a_limit_is_its_default_or_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert get_limit("image_pixels") == LIMITS["image_pixels"].default
    for text, amount in (("7", 7), (" 2 GiB ", 2 * 2**30), ("3KiB", 3072), ("", None)):
        monkeypatch.setenv("BOXMEND_MAX_IMAGE_PIXELS", text)
        assert get_limit("image_pixels") == (amount or LIMITS["image_pixels"].default)


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "1e9", "2 GB", "٣", "9" * 30])
def test_an_invalid_amount_in_the_environment_is_wrong_usage(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOXMEND_MAX_MODEL_LABELS", text)
    for call in (lambda: get_limit("model_labels"), check_environment):
        with pytest.raises(UsageError, match=r"BOXMEND_MAX_MODEL_LABELS is .* number of labels"):
            call()


def test_a_limit_that_does_not_exist_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    check_environment()
    monkeypatch.setenv("BOXMEND_MAX_IMAGE_PIXEL", "7")
    with pytest.raises(UsageError, match=r"_IMAGE_PIXEL: .*mean BOXMEND_MAX_IMAGE_PIXELS"):
        check_environment()


def test_an_amount_above_a_limit_is_refused_with_the_way_to_raise_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOXMEND_MAX_PATCH_BYTES", "1000")
    assert describe_excess("patch_bytes", 1000) is None
    ensure_within_limit("patch_bytes", 1000, "patch.json")
    with pytest.raises(
        DataError,
        match=r"^patch\.json: a\.txt: 1,001 bytes are more than the limit of 1,000; if you trust "
        "the file, set BOXMEND_MAX_PATCH_BYTES to at least 1001$",
    ):
        ensure_within_limit("patch_bytes", 1001, "patch.json", "a.txt")


def test_the_docs_list_every_limit() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `BOXMEND_MAX_")]
    assert rows == [
        f"| `{variable_name(name)}` | {one.default:,} {one.unit} | {one.purpose} |"
        for name, one in LIMITS.items()
    ]


def test_every_limit_is_in_use() -> None:
    package = Path(boxmend.__file__).parent
    sources = [path for path in package.rglob("*.py") if path.name != "limits.py"]
    code = "".join(path.read_text() for path in sources)
    assert [name for name in LIMITS if f'"{name}"' not in code] == []
