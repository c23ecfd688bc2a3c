"""The door: `regard`, and `python -m regard`."""

import signal
from typing import NoReturn

from regard.cli import main


def enter() -> NoReturn:
    """Run the command and leave with its exit code."""
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said; an impatient Ctrl-C while leaving adds no traceback
    raise SystemExit(code)


if __name__ == "__main__":
    enter()
