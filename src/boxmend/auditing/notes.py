"""Notes for the user about the inputs of an audit; a warning gives a reason to doubt the result."""


def warning(text: str) -> str:
    """Return a note that is a warning."""
    return f"WARNING: {text}"
