"""APIs by which clients push metrics (KIP-714): served only where the broker has an HTTP port."""
