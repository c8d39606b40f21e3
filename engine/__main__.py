"""`python -m engine`: the command line without the window, and without Qt."""

from engine.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
