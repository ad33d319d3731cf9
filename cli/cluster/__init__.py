"""The cluster as a whole: its brokers, settings, transactions and disks."""
