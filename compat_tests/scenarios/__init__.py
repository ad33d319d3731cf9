"""What real clients do."""
