"""What clients push of their metrics (KIP-714): served only where the broker has an HTTP port."""
