"""Files and folders: whole or not at all, typed JSON, model folders, TensorFlow's formats, caches and locks."""
