"""Training runs: folder, settings, ledger, and the settled result for each annotation."""
