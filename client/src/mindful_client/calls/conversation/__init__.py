"""Calls of the room conversation."""
