"""The console commands of the wheel: the programs in it, run in place of the interpreter."""

import os
import pathlib
import sys

_PROGRAMS = pathlib.Path(__file__).with_name("_native") / "bin"


def tutti():
    """The command line `tutti`."""
    _become("tutti")


def tuttid():
    """The agent `tuttid`."""
    _become("tuttid")


def _become(name):
    os.execv(_PROGRAMS / name, [name, *sys.argv[1:]])
