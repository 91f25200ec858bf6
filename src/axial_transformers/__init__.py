"""Axial-attention models of multidimensional data: exact likelihood, fast sampling, lossless compression."""
