"""A network in a stated order of float32 operations: equal bits on every processor, for archives.

`definition` has the constants and the weights, `reference` says what is computed, in NumPy. `compiled` computes the
same by kernels: `steps` are the kernels that Python calls, `layers` the layers, `row_functions` work on one row,
`mixtures` are the distributions of ordinal values, and `instructions` are single operations. `coding` is the entropy
coder, `float_environment` sets rounding and denormals.
"""
