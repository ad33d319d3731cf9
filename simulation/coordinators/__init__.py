"""The group coordinator on its real runtime over a simulated log: one seed, one order of steps. See `README.md`."""
