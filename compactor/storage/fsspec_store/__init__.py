"""Object stores through fsspec."""
