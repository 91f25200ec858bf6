"""What TensorFlow's file formats share: protocol buffer fields and checksums. Knows none of the formats itself."""
