"""`python -m marltrain`: the command line.

Python has put the working folder first on the path. A downloaded folder may hold a file of any module's name, so it is
taken off before anything else is imported; `marltrain.cli` puts it last where the user names a module of their own.
"""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from marltrain.cli import main

sys.exit(main())
