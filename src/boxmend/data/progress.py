"""The type of functions that show the progress of long work."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""A function that is called with the number of finished parts and the number of all parts."""
