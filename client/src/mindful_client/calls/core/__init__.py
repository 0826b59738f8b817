"""Calls of the room core."""
