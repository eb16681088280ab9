"""``python -m sage_attention`` is ``sage-attention``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
