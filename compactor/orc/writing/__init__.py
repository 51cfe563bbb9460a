"""Files from copied and encoded stripes: what their writer was, how they are compressed, and which schema they get."""
