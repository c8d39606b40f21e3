"""Where the frozen program begins: with Python's own children, then the app, its self-test or a command."""

import multiprocessing
import sys

from app.main import main

if __name__ == "__main__":
    multiprocessing.freeze_support()
    sys.exit(main())
