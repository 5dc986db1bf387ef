"""A page on this machine on which people decide about the fixes of a run."""
