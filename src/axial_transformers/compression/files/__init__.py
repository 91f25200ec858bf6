"""Archives of files: a folder of images or videos, or an array in an .npz or .npy file, and back."""
