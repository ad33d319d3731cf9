"""Copies of another cluster's topics, kept up by this one."""
