"""Assessment: what a run made of its annotations, held against the truth where it is known."""
