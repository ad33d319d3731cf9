"""Messages about share groups."""
