"""`python -m ottla.cli` is `ottla`."""

import sys

from ottla.cli import main

sys.exit(main())
