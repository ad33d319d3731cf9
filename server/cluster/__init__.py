"""One node among others: its membership, the controller's tasks, and connections between brokers."""
