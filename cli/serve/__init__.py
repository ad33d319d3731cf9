"""`ottla serve`: one broker in the foreground, and what its process needs around it."""
