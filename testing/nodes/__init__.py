"""The nodes of a broker or cluster under test: in a thread, or a process."""
