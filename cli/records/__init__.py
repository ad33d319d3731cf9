"""Records: `ottla produce`, `consume`, `record`, `replay` and `decode`."""
