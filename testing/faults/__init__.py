"""Deliberate faults: what happens to requests of a broker under test, and the dispatcher that makes it happen."""
