"""Training methods: each turns the annotations of a batch into losses."""
