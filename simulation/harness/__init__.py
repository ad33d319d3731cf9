"""What all simulations share: what comes of a seed, running many, shrinking, planted faults, scheduling."""
