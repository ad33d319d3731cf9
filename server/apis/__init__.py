"""One thin handler module an API key; only here are wire error codes known."""
