"""What is refused as a setting; messages name it by its dotted name, as files and options do."""

from boxmend.errors import UsageError


def check_share(name: str, value: float | None) -> None:
    """Refuse what is no number from 0 to 1; None means not set, which is fine."""
    if value is not None and not 0 <= value <= 1:  # not a NaN either
        raise UsageError(f"{name} is {value!r}; expected a share from 0 to 1")


def check_choice(name: str, value: str | None, known: tuple[str, ...]) -> None:
    """Refuse a name that is not among the known ones; None means not set."""
    if value is not None and value not in known:
        raise UsageError(f"{name} is {value!r}; expected {' or '.join(map(repr, known))}")


def check_count(name: str, value: int | None, least: int = 1) -> None:
    """Refuse a number below `least`; None means not set."""
    if value is not None and not value >= least:
        raise UsageError(f"{name} is {value!r}; expected {least} or more")


def check_amount(name: str, value: float | None, like: str) -> None:
    """Refuse what is no finite number from 0 on; None means not set. `like` is an example."""
    if value is not None and not 0 <= value < float("inf"):
        raise UsageError(f"{name} is {value!r}; expected a number from 0 on, like {like}")


def check_positive(name: str, value: float | None, like: str) -> None:
    """Refuse what is no finite number above 0; None means not set. `like` is an example."""
    if value is not None and not 0 < value < float("inf"):
        raise UsageError(f"{name} is {value!r}; expected a number above 0, like {like}")
