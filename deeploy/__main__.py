"""``python -m deeploy`` is the command ``deeploy``."""

from deeploy.cli import main

main()
