"""One of several registries writes: it is elected, and the others forward requests to it that change something."""
