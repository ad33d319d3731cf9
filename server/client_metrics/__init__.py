"""What clients push of their own metrics (KIP-714)."""
