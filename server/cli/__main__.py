"""`python -m ottla.server.cli` is `ottla`."""

import sys

from ottla.server.cli import main

sys.exit(main())
