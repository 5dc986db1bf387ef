"""Notes for the user about the inputs of an audit: plain ones inform, warnings doubt the result."""


def warning(text: str) -> str:
    """Return a note that is a warning."""
    return f"WARNING: {text}"
