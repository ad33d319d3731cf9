"""Following the logs of other brokers: what is fetched, what is appended, and by which fetcher and connection."""
