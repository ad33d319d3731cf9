"""The parts of a node: how they are made and connected, which of them are optional, and what a start checks."""
