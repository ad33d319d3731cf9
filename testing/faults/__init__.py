"""Faults on purpose: what befalls the requests of a broker under test, and the dispatcher that carries it out."""
