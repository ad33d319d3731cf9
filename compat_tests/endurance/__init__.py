"""Kills, full disks and long runs: programs that `make` calls."""
