"""Check that a supported version of another package is installed."""

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from boxmend.errors import UsageError


@dataclass(frozen=True)
class SupportedVersions:
    """The versions of a package that an integration accepts."""

    oldest: tuple[int, ...]
    newer_than_tested: tuple[int, ...]  # the first version that is refused
    text: str
    purpose: str


SUPPORTED = {
    "ultralytics": SupportedVersions(
        (8, 4, 0),
        (8, 5),
        "8.4 (8.4.0, 8.4.60, 8.4.120 and 8.4.190 are tested)",
        "mending inside a YOLO training",
    ),
    "lightning": SupportedVersions(
        (2, 6, 0), (2, 7), "2.6 (2.6.1 and 2.6.6 are tested)", "mending inside a Lightning training"
    ),
    "transformers": SupportedVersions(
        (5, 0, 0),
        (6,),
        "5 (5.0.0 and 5.23.0 are tested)",
        "mending inside a training by Hugging Face's Trainer",
    ),
}


def ensure_supported(package: str) -> None:
    """Raise a UsageError if a package is missing or has an unsupported version."""
    supported, remedy = SUPPORTED[package], f"pip install 'boxmend[{package}]'"
    try:
        installed = version(package)
    except PackageNotFoundError as error:
        raise UsageError(
            f"{supported.purpose} needs {package}, which is not installed: {remedy}"
        ) from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:3])
    if not supported.oldest <= numbers < supported.newer_than_tested:
        raise UsageError(
            f"{package} {installed} is installed; boxmend supports {supported.text}: {remedy}"
        )
