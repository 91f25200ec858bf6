"""Modules over the operations: attentions, blocks, embeddings."""
