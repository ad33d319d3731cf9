"""Whether one schema can read values written with another, by the rules of each type."""
