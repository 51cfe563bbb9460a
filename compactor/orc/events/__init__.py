"""Keys of rows, and the delete events that name them."""
