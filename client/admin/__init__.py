"""Administration of a cluster, and the texts in which people write it."""
