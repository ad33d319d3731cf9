"""What clients tried and saw, and what of it contradicts what they were promised."""
