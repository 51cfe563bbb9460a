"""Local and NFS paths, walked down by descriptors."""
