"""Archives of files: a folder of pictures or videos, or an array in an .npz or .npy file, and back."""
