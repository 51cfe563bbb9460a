"""
Runs the command line as `python -m compactor.cli`: where no console script is installed, and for a child process of the
same interpreter.
"""

from compactor.cli import main

if __name__ == "__main__":
    main()
