"""A network in a stated order of float32 operations: equal bits on every processor, for archives."""
