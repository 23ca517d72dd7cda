"""``python -m sklearn_dpgen``: see ``--help``."""

import sys

from sklearn_dpgen.command_line import main

if __name__ == "__main__":
    sys.exit(main())
