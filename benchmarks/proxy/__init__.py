"""What the proxy costs, and what its cache gives."""
