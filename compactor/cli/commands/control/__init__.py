"""Commands about the daemons and what they may begin."""
