"""Names, numbers and texts that break careless readers of files."""

import math
import random
from typing import Any

RAW_MARK = "@@RAW_MARK@@"  # starts a string whose rest is written without quotes
DUPLICATE_MARK = "@@DUPLICATE_MARK@@"  # starts a key whose rest duplicates another key

NAMES = (
    *("", ".", "..", "/", "//", "../x", "../../../../etc/passwd", "/etc/passwd", "a/../../b"),
    *("a\\b", "..\\x", "C:\\x", "a/", "./a", "a//b", "~", "-", "--help", " ", " a ", "\n", "\r\n"),
    *("\t", "\x00", "a\x00b", "\x1b[31m", "\ud800", "\udcff", "\u202e", "\ufeff", "\ufffe"),
    *("e\u0301", "\u00e9", "\uff11", "\u0663", "\U0001f600", "a" * 255, "a" * 300, "a" * 100_000),
    *("CON", "nul.png", "x.png/y.png", "/".join("a" * 300), "<b>&amp;</b>", "%s%n", "{0}", "$HOME"),
    *("nan", "inf", "1e999", "0x10", "1_000", "true", "null", "None", "+1", "1,5", "-0", "1e-400"),
    *("images/train", "instances_train.json", "Annotations", "data.yaml", "=1+1", "a:b", "a;b"),
)
NUMBERS: tuple[float, ...] = (
    *(0, 1, -1, 2, 0.5, -0.0, 1e-320, 1e308, -1e308, 3.4e39, 1e15, 1e16 + 2),
    *(255, 256, 65535, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64),
    *(-(2**31), -(2**63), -(2**63) - 1, 10**30, -(10**30), 10**400, math.nan, math.inf, -math.inf),
)
RAW_TEXTS = (
    *("1" * 5000, "1e999", "-1e999", "01", "+1", ".5", "1.", "1e", "0x1F", "NaN", "Infinity"),
    *("undefined", "'a'", "tru", "", ",", "]", "}", "/* c */ 1", "[" * 100_000, '{"a":' * 50_000),
    *('"\\ud800"', '"\\u12"', '"\\x41"', '"unfinished', "\x00", "1 1", "-"),
)


def draw_name(rng: random.Random) -> str:
    """Draw a name or another text."""
    return rng.choice(NAMES)


def draw_number(rng: random.Random) -> float:
    """Draw a number."""
    return rng.choice(NUMBERS)


def draw_value(rng: random.Random) -> Any:
    """Draw a value of any JSON type, or a text that is not JSON."""
    kind = rng.randrange(8)
    if kind < 3:
        return draw_number(rng)
    if kind < 5:
        return draw_name(rng)
    if kind == 5:
        return RAW_MARK + rng.choice(RAW_TEXTS)
    if kind == 6:
        return rng.choice((None, True, False))
    return rng.choice(([], {}, [[]], [None], {"": None}, [0, 0, 0, 0], [1] * 5000, {"a": {"b": 1}}))


def draw_token(rng: random.Random) -> str:
    """Draw a word for a text file."""
    if rng.random() < 0.5:
        return str(draw_number(rng)) if rng.random() < 0.9 else "9" * 5000
    return draw_name(rng)


def draw_similar(old: Any, rng: random.Random) -> Any:
    """Draw a value of the type of `old`, because it passes more checks."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice((old + 1, old - 1, -old, old * 1000, 0, 2**31, 2**63 - 1, -1))
    if isinstance(old, float):
        return rng.choice((old * 1e6, -old, 0.0, old + 1, 1e300, 5e-324, old * 0.5, math.nan))
    if isinstance(old, str):
        return rng.choice((draw_name(rng), old + "x", old[:-1], old.upper(), old * 2, old[::-1]))
    return draw_value(rng)
