"""Access: users, access control lists, quotas and certificates."""
