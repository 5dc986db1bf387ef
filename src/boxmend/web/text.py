"""Texts of users, made fit to be shown: names of labels and files may hold anything."""

import json
import re
from typing import Any

LONGEST = 200  # characters of a name that are shown
REPLACEMENT = "\ufffd"
# Control characters, and those that turn the direction of the text around them.
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def shown(text: str, longest: int = LONGEST) -> str:
    """The text on one line, valid in any document, and not longer than a person reads."""
    short = text if len(text) <= longest else f"{text[: longest - 1]}\u2026"
    return _UNFIT.sub(REPLACEMENT, short)


def script_json(value: Any) -> str:
    """JSON that nothing can break out of when it stands in a script element of HTML."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)
