"""Commands about the entries of queue and history: show them, ask for compactions, take them back."""
