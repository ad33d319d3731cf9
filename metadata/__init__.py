"""The cluster's metadata: its image, its store, and the controller that changes it."""
