"""`python -m gateway` is the `ringway` command."""

import sys

from gateway.cli.main import main

sys.exit(main())
