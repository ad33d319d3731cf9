"""How the metadata may change: pure functions on its values, and the transactions that carry them out."""
