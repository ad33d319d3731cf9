"""Who may do what, with all clients."""
