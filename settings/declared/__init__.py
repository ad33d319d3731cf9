"""Every setting, by concern: its name, type, default, check and what it does."""
