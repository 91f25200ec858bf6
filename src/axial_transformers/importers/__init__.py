"""Weights of other implementations: the authors' TensorFlow checkpoints, axial-deeplab's networks."""
