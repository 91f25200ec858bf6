"""Modules with weights: attention, blocks, embeddings."""
