"""`ottla proxy`."""
