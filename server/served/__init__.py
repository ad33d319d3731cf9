"""What is served: the table of the APIs, and what their requests have cost."""
