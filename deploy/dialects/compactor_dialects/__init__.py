"""Database products on which compactor was never run: a module with one subclass of its `Dialect` each."""
