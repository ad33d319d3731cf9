"""Metrics as they are declared, and as Prometheus reads them."""
