"""Whether what was written with one schema can be read with another, by the rules of each type."""
