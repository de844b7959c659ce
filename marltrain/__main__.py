"""`python -m marltrain`: the command line."""

from __future__ import annotations

import sys

from marltrain.cli import main

sys.exit(main())
