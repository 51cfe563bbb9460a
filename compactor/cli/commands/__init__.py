"""
The commands, about one module each, in packages by subject; `compactor.cli.root` imports a command's module when the
command is called.

Code that several commands share (reading, drawing, output) is in `compactor.cli`.
"""
