"""Calls of the room generate."""
