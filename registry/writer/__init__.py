"""One registry of several writes: who it is is elected, and the others send it what changes something."""
