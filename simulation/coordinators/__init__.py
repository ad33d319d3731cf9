"""The group coordinator with its real runtime over a simulated log: every wait of one request may be followed by any
step of another, and one seed decides the order. See `README.md`."""
