"""Messages about producers' transactions."""
