"""Calls of the room models."""
