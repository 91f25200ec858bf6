"""Costs of a model and of its training: operations, activations, memory, time."""
