"""Messages about the cluster and its features."""
