"""What goes wrong, or is done to the cluster, while clients work."""
