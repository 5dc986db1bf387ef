"""Report: a finished run as figures and as one page that a person wants to open.

`making.write_report` does it. Nothing is imported here, so that the processes that cut pictures
start at once.
"""
