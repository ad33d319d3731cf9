"""How much clients, users and addresses may use."""
