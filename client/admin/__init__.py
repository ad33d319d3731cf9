"""What administrators ask of a cluster, and how people write it."""
