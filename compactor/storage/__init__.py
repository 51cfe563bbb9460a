"""File systems and object stores behind one protocol (`storage.base`), with one driver for each kind."""
