"""The Worker: claims an entry, compacts, publishes, commits; and how it retries, gives back and rolls back."""
