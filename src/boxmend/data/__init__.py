"""Datasets: reading, writing, checking, comparing and disturbing annotations."""
