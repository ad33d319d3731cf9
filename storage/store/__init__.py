"""A store: memstores, segment files, the write loop, and the life that they share."""
