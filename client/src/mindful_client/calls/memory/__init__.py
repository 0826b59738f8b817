"""Calls of the room memory."""
