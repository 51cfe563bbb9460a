"""`python -m compactor.cli`: the console script where none is installed, and for a child process of the same interpreter."""

from compactor.cli import main

if __name__ == "__main__":
    main()
