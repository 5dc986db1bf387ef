"""Files and folders on disk: whole or absent, locked, checked, limited."""
