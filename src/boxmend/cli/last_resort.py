"""The report of an unexpected exception: a short message, and a file with the traceback."""

import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence

import boxmend

VARIABLE = "BOXMEND_TRACEBACK"


def explain(error: Exception, tokens: Sequence[str]) -> None:
    """Print what happened and how to report it; the traceback goes into a new temporary file.

    The traceback goes to stderr instead if the environment has BOXMEND_TRACEBACK=1, or if no file
    can be written.
    """
    report = _report(error, tokens)
    path = None if os.environ.get(VARIABLE) == "1" else _write_report(report)
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    place = "is above" if path is None else f"is in {path}"
    if path is None:
        _print(report)
    _print(
        f"boxmend: an unexpected error ended the command ({reason[:200]}). This is a bug in "
        f"boxmend.\nThe traceback {place}. Please send it to the maintainers and describe your "
        "data. It contains file names: remove those that you do not want to share."
    )


def _report(error: Exception, tokens: Sequence[str]) -> str:
    lines = [
        f"boxmend {boxmend.__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: boxmend {shlex.join(tokens)}",
        "",
        *traceback.format_exception(error),
    ]
    return "\n".join(line.rstrip("\n") for line in lines)


def _write_report(report: str) -> str | None:
    """Write a temporary file that only its owner can read; return None if that fails."""
    try:
        handle, path = tempfile.mkstemp(prefix="boxmend-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(report + "\n")
    except OSError:
        return None
    return path


def _print(text: str) -> None:
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr)
