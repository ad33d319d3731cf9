"""Opening a store, whether it is new or was killed."""
