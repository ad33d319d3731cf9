"""Messages about settings and quotas."""
