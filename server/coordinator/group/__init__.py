"""Consumer groups: the classic protocol, the protocol of KIP-848, and the offsets that both commit."""
