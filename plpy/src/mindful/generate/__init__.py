"""Calls of generators, embedders and rerankers: text, batches, labels, JSON, summaries, embeddings, scores."""
