"""Following the logs of other brokers: what is asked for, what is appended, and who does so over which connection."""
