"""The simulator's clients and checkers on real processes, in real time."""
