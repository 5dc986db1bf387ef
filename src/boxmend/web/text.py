"""Make users' texts safe to show: names of labels and files may hold any character."""

import json
import re
from typing import Any

MAX_CHARACTERS = 200
REPLACEMENT = "\ufffd"
# Control characters, and those that change the direction of the text around them.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def display_text(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Return a text on one line, valid in any document, and shortened if it is too long."""
    short = text if len(text) <= max_characters else f"{text[: max_characters - 1]}\u2026"
    return _UNSAFE.sub(REPLACEMENT, short)


def script_json(value: Any) -> str:
    """Return JSON that cannot end the HTML script element that holds it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)
