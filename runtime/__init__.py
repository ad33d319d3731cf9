"""The foundation of servers: work in slices, waits with deadlines, budgets of memory, supervised tasks, log lines.

Nothing here knows Kafka's requests, topics or nodes.
"""
