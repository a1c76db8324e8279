"""`python -m manyclass`, the same as `manyclass`."""

import sys

from manyclass.cli import main

sys.exit(main())
