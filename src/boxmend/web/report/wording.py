"""Numbers with their nouns and units, as the summary of a report has them."""

from pathlib import PurePath

from boxmend.web.text import display_text

MAX_ADDRESS_PARTS = 2  # the last parts of an address; the page hides the machine's folders


def percent(share: float, decimals: int = 1) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.{decimals}f}\N{NO-BREAK SPACE}%"


def many(number: int, word: str, plural: str = "s") -> str:
    """Return a number and its noun, such as 1 box or 2 boxes."""
    return f"{number:,} {noun(number, word, plural)}"


def noun(number: int, word: str, plural: str = "s") -> str:
    """Return a noun in the form that a number needs."""
    return word if number == 1 else f"{word}{plural}"


def short_address(address: str) -> str:
    """Return the end of an address, without the folders of the machine before it."""
    parts = PurePath(address).parts
    return display_text("/".join(part for part in parts[-MAX_ADDRESS_PARTS:] if part != "/"))
