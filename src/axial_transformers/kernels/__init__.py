"""Kernels that numba compiles for the processor: attention along lines, rows of sites, and the tiles that both use."""
