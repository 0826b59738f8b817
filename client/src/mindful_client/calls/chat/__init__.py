"""Calls of the room chat."""
