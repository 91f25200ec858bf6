"""TensorFlow's file formats, read without TensorFlow."""
