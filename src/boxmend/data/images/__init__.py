"""Image files: opening them safely, decoding them, and drawing boxes on them."""
