"""How a node is watched: log lines, metrics, and whether it is ready."""
