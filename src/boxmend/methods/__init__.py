"""Methods: how the annotations of a batch become losses, one method per row of the tables."""
