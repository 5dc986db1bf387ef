"""Image files: open and decode them safely, and draw boxes on them."""
