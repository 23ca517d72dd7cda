"""The cases of other tests are here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "ledger"))
