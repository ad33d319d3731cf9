"""Messages about records and logs."""
