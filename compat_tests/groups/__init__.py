"""Members of consumer groups as processes of their own, so that they can crash."""
