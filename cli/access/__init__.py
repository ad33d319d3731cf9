"""Who may do what: users, access control lists, quotas and certificates."""
