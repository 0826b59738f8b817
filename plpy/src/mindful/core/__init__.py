"""The lowest room: the backend, entry points, errors, ports, slots, settings, text."""
