"""Calls of the room learning."""
