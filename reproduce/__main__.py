import signal
import sys

from .command import main

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also terminates the runs in progress
    sys.exit(main())
