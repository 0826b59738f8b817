"""Embeddings of memories, the queue of embeddings, and documents in chunks."""
