import signal
import sys

from .command import main

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended from outside: end the runs under way, too
    sys.exit(main())
