"""What is made of the figures: docs/performance.md, its tables and its pictures."""
