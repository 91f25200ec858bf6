"""Archives of files: a folder of pictures, or an array in an .npz or .npy file, and back."""

from axial_transformers.compression.files.file_archive import Written, compress_files, decompress_files

__all__ = ["Written", "compress_files", "decompress_files"]
