"""`python -m manyclass`, the same as `manyclass`."""

from manyclass.cli import main

main()
