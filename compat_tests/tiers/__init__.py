"""Real clients and tiered topics, over a server with the interface of S3."""
