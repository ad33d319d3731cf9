"""What the options of sources and sinks have in common."""
