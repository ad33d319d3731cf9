"""One node among others: its place in the cluster, who is the controller, and connections between brokers."""
