"""Check that a supported version of Ultralytics is installed."""

import re
from importlib.metadata import PackageNotFoundError, version

from boxmend.errors import UsageError

OLDEST_VERSION = (8, 4, 0)
NEWER_THAN_TESTED = (8, 5)
SUPPORTED = "8.4 (8.4.0 to 8.4.190 are tested)"
REMEDY = "pip install 'boxmend[ultralytics]'"


def ensure_supported() -> None:
    """Raise a UsageError if Ultralytics is missing or has an unsupported version."""
    try:
        installed = version("ultralytics")
    except PackageNotFoundError as error:
        raise UsageError(
            f"mending inside a YOLO training needs ultralytics, which is not installed: {REMEDY}"
        ) from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:3])
    if not OLDEST_VERSION <= numbers < NEWER_THAN_TESTED:
        raise UsageError(
            f"ultralytics {installed} is installed; boxmend supports {SUPPORTED}: {REMEDY}"
        )
