"""OAUTHBEARER: tokens, the keys that they are signed with, and who validates them (KIP-255, KIP-768)."""
