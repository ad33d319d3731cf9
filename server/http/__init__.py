"""The HTTP port: metrics, health and the web console. Nothing of it is imported unless it is asked for."""
