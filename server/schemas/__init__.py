"""The schemas of records, as far as the broker itself uses them: where they are known, and validation by topic."""
