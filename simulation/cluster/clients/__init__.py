"""Clients of the simulated cluster, over its network as over any other."""
