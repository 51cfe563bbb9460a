"""Commands for an installation: write, check and show the settings, try what they name, prepare Spark and the shell."""
