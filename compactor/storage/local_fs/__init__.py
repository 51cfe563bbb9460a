"""
Local and NFS paths, walked down by descriptors.

No symbolic link is followed below a warehouse root. The choice of a driver is in `storage.registry`.
"""
