"""Calls of the room confidence."""
