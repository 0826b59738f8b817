"""Consolidation: facts extracted from texts. Replay: training samples made of facts, and the checks on them."""
