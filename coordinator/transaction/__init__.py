"""Transactions: the producer of a transactional id, and how its transaction ends everywhere or nowhere."""
