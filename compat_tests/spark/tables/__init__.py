"""Topics kept in tables by `ottla table sync` on Spark, and tables sent to topics."""
