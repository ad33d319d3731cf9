"""Coordinators: state that is replayed from an internal topic and changed only by records committed to it."""
