"""Range checks of settings; messages name a setting by its dotted name, like files and options."""

from boxmend.errors import UsageError

MAX_TENSOR_COUNT = 1_000_000  # candidates, proposals or losses: tensors of this size are kept


def check_share(name: str, value: float | None) -> None:
    """Raise a UsageError for a number outside 0 to 1; None means not set."""
    if value is not None and not 0 <= value <= 1:  # also true for NaN
        raise UsageError(f"{name} is {value!r}; expected a share from 0 to 1")


def check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    """Raise a UsageError for a word that is not among the choices; None means not set."""
    if value is not None and value not in choices:
        raise UsageError(f"{name} is {value!r}; expected {' or '.join(map(repr, choices))}")


def check_count(name: str, value: int | None, minimum: int = 1, maximum: int | None = None) -> None:
    """Raise a UsageError for a number below `minimum` or above `maximum`; None means not set."""
    if value is not None and not value >= minimum:
        raise UsageError(f"{name} is {value!r}; expected {minimum} or more")
    if value is not None and maximum is not None and value > maximum:
        raise UsageError(f"{name} is {value!r}; expected at most {maximum:,}")


def check_amount(name: str, value: float | None, example: str) -> None:
    """Raise a UsageError for a negative or infinite number; None means not set."""
    if value is not None and not 0 <= value < float("inf"):
        raise UsageError(f"{name} is {value!r}; expected a number from 0 on, like {example}")


def check_positive(name: str, value: float | None, example: str) -> None:
    """Raise a UsageError for a number that is not above 0, or is infinite; None means not set."""
    if value is not None and not 0 < value < float("inf"):
        raise UsageError(f"{name} is {value!r}; expected a number above 0, like {example}")
