"""Faults on purpose: a plan of what befalls requests, and the dispatcher that carries it out."""
