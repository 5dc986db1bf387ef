"""The tests, in packages that mirror those of boxmend."""

from pathlib import Path

ROOT = Path(__file__).parent.parent  # of the project
