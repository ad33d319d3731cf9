"""Records: written, read, found by time or epoch, deleted; and where they lie."""
