"""Grids: compare methods under noise, cell by cell, and make tables of the results.

`layouts` defines the rows and columns of a table, and so the cells that a grid runs. `results` is
the file between running and reading, with one line per try of a cell.
"""
