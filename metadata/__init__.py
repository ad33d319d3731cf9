"""The cluster's metadata: where it is kept, what it says, and who may change it."""
