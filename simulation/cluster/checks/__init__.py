"""What must be true of the cluster while it runs and when all is over."""
