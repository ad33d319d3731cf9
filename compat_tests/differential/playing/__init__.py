"""Histories as they are played: on one broker, on two beside each other, on the nodes of two clusters."""
