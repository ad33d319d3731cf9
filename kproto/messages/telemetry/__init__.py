"""Messages about what clients measure."""
