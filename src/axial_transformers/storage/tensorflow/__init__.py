"""TensorFlow's file formats, read without TensorFlow: checksums, protocol buffers, LevelDB tables, tensor bundles."""
