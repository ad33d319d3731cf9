"""Groups with members of both the classic and the consumer protocol."""
