"""The brokers that scenarios run against, and what is done to them."""
