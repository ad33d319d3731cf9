"""Messages of topics: found, read, decoded and written as files."""
