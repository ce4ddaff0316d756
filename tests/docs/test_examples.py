"""Runs the programs that pages show, under `tutti run`, and compares what they print.

A block opened by ```python run --hosts 2 --per-host 2 (or c, cpp, rust) is run with these
arguments. The block ```text output behind it holds what it prints: lines in any order, any numbers.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import commands
from pages import ROOT, Page, read_pages, rust_example

TIMEOUT_S = 120


def runnable(page):
    """(block, the block of its output or None) of each block to run."""
    for block, after in zip(page.blocks, [*page.blocks[1:], None]):
        if block.run_options():
            is_output = after is not None and (after.language, after.info) == ("text", "output")
            yield block, after if is_output else None


def build(block, folder):
    """The command that runs a block's program."""
    if block.language == "python":
        path = os.path.join(folder, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(block.text)
        return [sys.executable, path]
    if block.language == "rust":
        return build_rust(rust_example(block.text), folder)
    compiler, kind, standard = ((os.environ["TUTTI_CC"], "c", "c99") if block.language == "c" else
                                (os.environ["TUTTI_CXX"], "c++", "c++20"))
    library = os.environ["TUTTI_LIBRARY"]
    path = os.path.join(folder, "program")
    libraries = os.path.dirname(library)
    subprocess.run([compiler, f"-std={standard}", commands.include_flag(), "-x", kind, "-",
                    "-x", "none", f"{libraries}/libtutti_faces.a", library,
                    f"-Wl,-rpath,{libraries}", "-o", path],
                   input=block.text, text=True, check=True)
    return [path]


def build_rust(name, folder):
    """The same for an example of the crate."""
    environment = {**os.environ, "TUTTI_LIB_DIR": os.path.dirname(os.environ["TUTTI_LIBRARY"])}
    subprocess.run(["cargo", "build", "--offline", "--locked", "--quiet", "--example", name,
                    "--target-dir", folder, "--manifest-path", ROOT / "client/rust/Cargo.toml"],
                   env=environment, check=True)
    return [f"{folder}/debug/examples/{name}"]


def run(block):
    """(exit code, standard output, all output)."""
    arguments, _ = block.run_options()
    with tempfile.TemporaryDirectory() as folder:
        command = [commands.binary("tutti"), "run", *arguments, "--", *build(block, folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S,
                              stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stdout + done.stderr


def normal(text):
    """Lines without their order and without the values of process ids."""
    return sorted(re.sub(r"pid \d+", "pid N", line) for line in text.split("\n") if line)


def wrong_example(block, output):
    """Why a program does not do what its page says, or ""."""
    code, printed, everything = run(block)
    _, fails = block.run_options()
    if (code != 0) != fails:
        return f"{block}: exit code {code}\n{everything}"
    if output is not None and normal(printed) != normal(output.text):
        return f"{block}: prints\n{printed}\n{everything}"
    return ""


class Examples(unittest.TestCase):
    def test_every_program_does_what_its_page_says(self):
        found = 0
        for page in read_pages().values():
            for block, output in runnable(page):
                with self.subTest(block=str(block)):
                    if block.language == "rust" and not shutil.which("cargo"):
                        self.skipTest("cargo is not installed")
                    found += 1
                    self.assertEqual(wrong_example(block, output), "")
        self.assertGreaterEqual(found, 5)


class ReadmesProgram(unittest.TestCase):
    def test_it_is_the_file_that_it_names(self):
        block, _ = next(runnable(read_pages()["README.md"]))
        _, _, program = (ROOT / "deploy/example.py").read_text().partition('"""\n\n')
        self.assertEqual(block.text, program)


class EachCheckCanFail(unittest.TestCase):
    def expect_wrong(self, text):
        (block, output), = runnable(Page("docs/sample.md", text))
        self.assertNotEqual(wrong_example(block, output), "", text)

    def test_exit_codes(self):
        self.expect_wrong("```python run --per-host 1\nraise SystemExit(3)\n```")
        self.expect_wrong("```python run --per-host 1, fails\nimport tutti\n```")

    def test_output(self):
        program = "```python run --per-host 1\nprint('two words')\n```\n"
        self.expect_wrong(program + "```text output\ntwo ducks\n```")


if __name__ == "__main__":
    unittest.main()
