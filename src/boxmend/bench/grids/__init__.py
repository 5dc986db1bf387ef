"""Grids: comparisons of methods under noise, run cell by cell, and the tables they give.

`layouts` says what a table is made of, and so which cells a grid runs; `results` is what passes
between running and reading: one line for each cell.
"""
