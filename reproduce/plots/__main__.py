import sys

from .compare import main

if __name__ == "__main__":
    sys.exit(main())
