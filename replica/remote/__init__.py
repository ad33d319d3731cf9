"""What goes on with the object store by itself: copies, retention, looks of new leaders, sweeps, deletions."""
