"""`python -m regard` is the same door as `regard`."""

from regard.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
