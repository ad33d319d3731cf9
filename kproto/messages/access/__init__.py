"""Messages about users, their credentials, tokens and access control lists."""
