"""The exact network: a float32 model on the engine, with the same bits on every CPU.

Likelihoods, samples and archives take it. "The engine" is the C code and its library; "exact" is the network on it.
"""
