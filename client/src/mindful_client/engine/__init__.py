"""Servers of llama.cpp that run registered model files for all connections."""
