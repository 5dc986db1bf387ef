"""Text that is valid Unicode, whatever a file name or a document holds."""


def escape_surrogates(value: object) -> str:
    r"""Return the value as text that UTF-8 can encode.

    Half a surrogate pair, which undecodable bytes of a file name leave, is spelt out as `\udc80`.
    """
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
