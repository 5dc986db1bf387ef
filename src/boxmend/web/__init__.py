"""Pages: the report of a run, the review page, and the charts on both."""
