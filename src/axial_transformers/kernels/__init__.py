"""Kernels that numba compiles for the processor at hand: register tiles, attention along lines, rows, threads."""
