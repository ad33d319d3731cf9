"""Waiting on behalf of a request: purgatories, their deadlines, and how long a request has waited for others."""
