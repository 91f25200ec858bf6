"""Shards: tar files of records, as webdataset writes them, of any number and size."""

from axial_transformers.data.shards.shard_examples import ShardExamples, load_shards
from axial_transformers.data.shards.sources import SUFFIX, names_shards, shard_files

__all__ = ["SUFFIX", "ShardExamples", "load_shards", "names_shards", "shard_files"]
