"""Report: a finished run as one page with figures and a gallery.

`writing.write_report` writes it. This module imports nothing, so that the processes that make
pictures start fast.
"""
