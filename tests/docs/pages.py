"""The pages of the documentation: their text, blocks of code, names in backticks and links."""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATED = ("docs/reference-c.md", "docs/reference-cpp.md", "docs/reference-python.md")


class Block:
    """Code between fences. `info`: the words behind its language."""

    def __init__(self, page, line, words, text):
        self.page, self.line, self.text = page, line, text
        self.language, _, self.info = words.partition(" ")

    def __str__(self):
        return f"{self.page.path}:{self.line}"

    def run_options(self):
        """(arguments of `tutti run`, whether the command fails), or None for a block not to run."""
        if not self.info.startswith("run "):
            return None
        arguments, _, remark = self.info.removeprefix("run ").partition(", ")
        return arguments.split(), remark == "fails"


class Page:
    """A Markdown file. Raises ValueError where a fence has no end."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.lines = text.split("\n")
        self.blocks, prose, opened = [], [], None
        for number, line in enumerate(self.lines, 1):
            if opened is None and line.startswith("```"):
                opened = (number, line[3:].strip(), [])
            elif opened is not None and line == "```":
                self.blocks.append(Block(self, opened[0], opened[1], "\n".join(opened[2]) + "\n"))
                opened = None
            elif opened is not None:
                opened[2].append(line)
            inside = opened is not None or line == "```"
            prose.append("" if inside else line)
        if opened is not None:
            raise ValueError(f"{path}:{opened[0]}: this fence has no end")
        self.prose = "\n".join(prose)

    def spans(self):
        """(line, text) of what is between backticks."""
        for found in re.finditer(r"(?<!`)`([^`\n]+)`(?!`)", self.prose):
            yield self.prose.count("\n", 0, found.start()) + 1, found[1]

    def links(self):
        """(line, target) of links."""
        bare = re.sub(r"`[^`\n]*`", lambda span: "x" * len(span[0]), self.prose)
        for found in re.finditer(r"(?<!\\)\[[^\]]*[^\]\\]\]\(([^)\s]+)\)", bare):
            yield self.prose.count("\n", 0, found.start()) + 1, found[1]

    def anchors(self):
        """The anchors of the headings, as GitHub makes them."""
        titles = re.findall(r"(?m)^#+ (.*)$", self.prose)
        plain = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
        return {title.replace(" ", "-") for title in plain}


def read_page(path):
    return Page(path, (ROOT / path).read_text(encoding="utf-8"))


def read_pages():
    """Every page that users and developers read, by path."""
    folder = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
    paths = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/bench/README.md", *folder]
    return {path: read_page(path) for path in paths}


def rust_example(text):
    """The name of the crate's example with this text below its first comment, or None."""
    for path in (ROOT / "client/rust/examples").glob("*.rs"):
        if path.read_text(encoding="utf-8").partition("\n\n")[2] == text:
            return path.stem
    return None


def is_source(path):
    """For a path from the root. Not these tests, whose samples are wrong on purpose."""
    skipped = ("corpus", "__pycache__", "docs")
    return (ROOT / path).is_file() and not any(part in skipped for part in path.parts)


class Tree:
    """The repository's files, and the words in them."""

    FOLDERS = ("client", "daemon", "deploy", "proto", "tests")
    FILES = ("CMakeLists.txt", "CMakePresets.json", "Dockerfile", ".clang-tidy", ".clang-format")

    def __init__(self):
        found = [path.relative_to(ROOT) for folder in self.FOLDERS
                 for path in (ROOT / folder).rglob("*")]
        self.files = {str(path) for path in found if is_source(path)} | set(self.FILES)
        texts = {path: (ROOT / path).read_text(encoding="utf-8", errors="replace")
                 for path in sorted(self.files)}
        self.text = "\n".join(texts.values())
        self.words_of = {path: set(re.findall(r"\w+", text)) for path, text in texts.items()}
        self.words = set().union(*self.words_of.values(), self.programs())
        self.names = {os.path.basename(path) for path in self.files}
        self.top = {path.name for path in ROOT.iterdir()}

    def programs(self):
        """The names of the tests' programs, as tests/CMakeLists.txt makes them."""
        for path in self.files:
            found = re.fullmatch(r"tests/(\w+)/(\w+)_test\.cc", path)
            if found:
                yield f"{found[1]}_test" if found[1] == found[2] else f"{found[1]}_{found[2]}_test"

    def has_member(self, owner, member):
        """Whether some file names both: a cheap stand-in for a parser."""
        return any(owner in words and member in words for words in self.words_of.values())

    def has(self, path):
        """Whether there is such a file or folder; <name> and * stand for any."""
        pattern = re.sub(r"<[^>]*>", "*", path).rstrip("/")
        return any(ROOT.glob(pattern))
