"""Run the command line as `python -m boxmend`."""

from boxmend.cli import main

main()
