"""Copies of another cluster's topics, which this one keeps up to date."""
