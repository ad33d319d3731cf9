"""The consumers of the proxy's HTTP clients."""
