"""``python -m perfmodel`` is the ``perfmodel`` command."""

from perfmodel.cli.app import main

if __name__ == "__main__":
    main()
