"""Whole nodes in one process, on a simulated network, with simulated disks and time: see `README.md`."""
