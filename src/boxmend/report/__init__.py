"""Report: a finished run as figures and as one page that a person wants to open."""
