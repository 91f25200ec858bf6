"""Storage: files written whole or not at all, typed JSON, model folders, TensorFlow's formats, the cache."""
