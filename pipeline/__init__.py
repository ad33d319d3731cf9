"""From topics to tables: the Spark side of Ottla. It uses `kproto` and the readers of `storage`, never the server."""
