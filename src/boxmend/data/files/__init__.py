"""Files and folders on disk: atomic writes, locks, digests and size limits."""
