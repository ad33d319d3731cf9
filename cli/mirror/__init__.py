"""`ottla mirror`."""
