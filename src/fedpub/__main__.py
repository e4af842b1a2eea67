import sys

from fedpub.cli import main

sys.exit(main())
