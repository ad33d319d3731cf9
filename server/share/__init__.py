"""Share partitions as their leader serves them: who holds which record, until when, and what is delivered next."""
