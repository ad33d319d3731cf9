"""One thin handler module for each API key; only here are wire error codes known."""
