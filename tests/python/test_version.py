"""The version is that of CMakeLists.txt, wherever it is asked for."""

import os
import pathlib
import re
import subprocess
import unittest

import tutti

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BIN = pathlib.Path(os.environ["TUTTI_LIBRARY"]).parents[1] / "bin"


class Version(unittest.TestCase):
    def setUp(self):
        project = re.search(r"project\(tutti VERSION (\S+)",
                            (_ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
        self.version = project.group(1)

    def test_of_the_package(self):
        self.assertEqual(tutti.__version__, self.version)

    def test_of_the_programs(self):
        for command in ("tutti --version", "tutti version", "tuttid --version"):
            program, argument = command.split()
            told = subprocess.run([_BIN / program, argument], text=True, stdout=subprocess.PIPE,
                                  check=True).stdout
            self.assertEqual(told.split()[:2], [program, self.version])
            self.assertEqual(told.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
