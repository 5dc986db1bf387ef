"""The type of functions that show the progress of long work; imports nothing that takes time."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with the number of parts that are done and the number of all parts."""
