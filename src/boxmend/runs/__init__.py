"""Training runs: their folder, settings, ledger, and what they conclude about annotations."""
