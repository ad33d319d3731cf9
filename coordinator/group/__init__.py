"""Groups of every kind (classic, consumer, streams and share groups), and the offsets that they commit."""
