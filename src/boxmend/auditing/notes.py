"""Notes for the user about the inputs of an audit; warnings say why its result is in doubt."""


def warning(text: str) -> str:
    """Return a note that is a warning."""
    return f"WARNING: {text}"
