"""The operators of the integer form: loop nests and NumPy references that targets build kernel declarations from."""
