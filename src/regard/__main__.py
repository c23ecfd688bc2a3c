"""Entry point of the command line: `regard` and `python -m regard`."""

import signal
from typing import NoReturn

from regard.cli import main


def enter() -> NoReturn:
    """Run the command of sys.argv and exit with its exit code."""
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C during exit adds no traceback
    raise SystemExit(code)


if __name__ == "__main__":
    enter()
