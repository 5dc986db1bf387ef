"""Text that is valid Unicode, whatever a file name or a document holds."""


def escape_surrogates(value: object) -> str:
    r"""Return a value as text that UTF-8 can encode.

    A lone surrogate, which comes from undecodable bytes of a file name, becomes text like `\udc80`.
    """
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
