"""The desk: a page for people, which the service shows at /."""
