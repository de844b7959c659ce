"""`python -m marltrain`: the command line.

Python puts the working folder first on the path. A downloaded folder may contain a file with the name of any module.
Therefore it is removed before other imports; `marltrain.cli` appends it if the user names a module of their own.
"""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from marltrain.cli import main

sys.exit(main())
