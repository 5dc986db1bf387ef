"""The review page: a local server on which people decide on the fixes of a run."""
