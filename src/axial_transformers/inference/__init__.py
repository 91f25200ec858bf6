"""The one float32 network of a CPU: known values in one pass, and the steps that decoding takes."""
