"""Whether what the documentation says is there. Each check also shows here that it can fail."""

import ast
import os
import re
import subprocess
import sys
import unittest

import commands
import names
from pages import GENERATED, ROOT, Page, Tree, read_page, read_pages, rust_example

KIND_FILES = 8  # That name a strategy, a collective or a dtype.
README_LINES = 120
COLUMNS = 120
TREE = Tree()
PAGES = read_pages()


def page_of(text):
    return Page("docs/sample.md", text)


def wrong_links(page):
    """Links to files and headings that are not there."""
    for line, target in page.links():
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        base = os.path.dirname(page.path)
        there = os.path.normpath(os.path.join(base, path)) if path else page.path
        if path and not (ROOT / there).exists():
            yield f"{page.path}:{line}: there is no {target}"
        elif anchor and anchor not in (read_page(there) if path else page).anchors():
            yield f"{page.path}:{line}: {target} has no such heading"


def pages_linked_from(page):
    for _, target in page.links():
        path = os.path.normpath(os.path.join(os.path.dirname(page.path), target.split("#")[0]))
        if path in PAGES:
            yield path


def wrong_names(page):
    for line, span in page.spans():
        why = names.refuse(span, TREE)
        if why:
            yield f"{page.path}:{line}: `{span}`: {why}"


def wrong_commands(page):
    for block in page.blocks:
        if block.language == "sh":
            for words in commands.split_commands(block.text):
                why = commands.refuse(words, TREE)
                if why:
                    yield f"{block}: {' '.join(words)}: {why}"


def wrong_messages(page):
    """Texts of errors that the source does not have. What programs print is compared elsewhere."""
    for block in page.blocks:
        if (block.language, block.info) == ("text", ""):
            for line in block.text.splitlines():
                why = names.refuse_message(line, TREE)
                if why:
                    yield f"{block}: {why}"


def wrong_code(page):
    """Blocks that do not compile. For generated references the programs, not the declarations."""
    for block in page.blocks:
        if block.language == "python":
            try:
                ast.parse(block.text)
            except SyntaxError as error:
                yield f"{block}: {error}"
        elif block.language in ("c", "cpp") and (block.run_options() or page.path not in GENERATED):
            errors = compiler_errors(block)
            if errors:
                yield f"{block}: {errors}"
        elif block.language == "rust":
            if rust_example(block.text) is None:
                yield f"{block}: client/rust/examples has no such program"
        elif block.language not in ("c", "cpp", "sh", "text", ""):
            yield f"{block}: no check knows the language {block.language}"


def compiler_errors(block):
    compiler, kind, standard = ((os.environ["TUTTI_CC"], "c", "c99") if block.language == "c" else
                                (os.environ["TUTTI_CXX"], "c++", "c++20"))
    done = subprocess.run([compiler, "-x", kind, f"-std={standard}", "-Wall", "-Werror",
                           "-fsyntax-only", commands.include_flag(), "-"],
                          input=block.text, capture_output=True, text=True)
    return done.stderr if done.returncode != 0 else ""


def wrong_length(page, most):
    if len(page.lines) - 1 > most:
        yield f"{page.path}: {len(page.lines) - 1} lines, {most} at most"


def wide_lines(page):
    """Lines of prose that are too long to read; tables and output may be."""
    for number, line in enumerate(page.prose.split("\n"), 1):
        if len(line) > COLUMNS and not line.startswith("|"):
            yield f"{page.path}:{number}: {len(line)} columns, {COLUMNS} at most"


def wrong_floors(page):
    """Rows of the tables of rooms that tests/tidy/includes.h contradicts."""
    source = (ROOT / "tests/tidy/includes.h").read_text(encoding="utf-8")
    floors = {name: int(floor) for name, floor in re.findall(r'\{"(\w+)",\s+(\d+)\}', source)}
    rows = re.findall(r"(?m)^\| (\d+) \| `(\w+)` ", page.prose)
    said = {name: int(floor) for floor, name in rows}
    for name in sorted(floors.keys() | said.keys()):
        if floors.get(name) != said.get(name):
            yield f"{page.path}: floor of {name}: {said.get(name)}, in fact {floors.get(name)}"


def wrong_room_links(page):
    """Rows of the same table whose links daemon/CMakeLists.txt contradicts."""
    source = (ROOT / "daemon/CMakeLists.txt").read_text(encoding="utf-8")
    made = {name: set(re.findall(r"\btutti_(\w+)", links))
            for name, links in re.findall(r"(?m)^tutti_room\((\w+)(.*)\)$", source)}
    rows = re.findall(r"(?m)^\| \d+ \| `(\w+)` \|[^|]*\|([^|]*)\|", page.prose)
    for name, text in rows:
        links = made.get(name, set()) & made.keys()
        said = set(re.findall(r"\w+", text)) & made.keys()
        if links != said:
            yield f"{page.path}: links of {name}: {sorted(said)}, in fact {sorted(links)}"


def files_that_name(kind):
    """Product sources that a contributor who adds such a kind visits."""
    return [path for room in ("daemon", "client", "proto") for path in (ROOT / room).rglob("*.*")
            if path.suffix in (".h", ".cc") and
            re.search(rf"\b{kind}\b", path.read_text(encoding="utf-8"))]


def wrong_settings(page):
    """Settings or defaults of the table that `tuttid --help-all` does not confirm."""
    text = commands.help_of(commands.binary("tuttid"), flag="--help-all")
    listed = dict(re.findall(r"(?m)^  --([a-z-]+) (?:TEXT|NUMBER|\{[^}]*\})(?:=(\S+))?", text))
    rows = re.findall(r"(?m)^\| `(\w+)` \| (?:`([^`]*)`|empty)[^|]*\| (?:`|text)", page.prose)
    said = {name.replace("_", "-"): default for name, default in rows}
    for name, default in said.items():  # Of several words: help, if any, is on the next line.
        if " " in default and f"  --{name} TEXT={default}\n" in text:
            listed[name] = default
    for name in sorted(listed.keys() | said.keys()):
        if listed.get(name) != said.get(name):
            yield f"{page.path}: {name}: {said.get(name)}, in fact {listed.get(name)}"


def ratios(text, begin):
    """All ratios in the rows of tables that begin so, ascending."""
    rows = [line for line in text.split("\n") if re.match(begin, line)]
    return sorted(float(number) for row in rows for number in re.findall(r"\b\d\.\d\d\b", row))


class Pages(unittest.TestCase):
    def expect_none(self, check):
        found = [wrong for page in PAGES.values() for wrong in check(page)]
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def test_links_lead_somewhere(self):
        self.expect_none(wrong_links)

    def test_names_are_in_the_source(self):
        self.expect_none(wrong_names)

    def test_commands_have_their_flags(self):
        self.expect_none(wrong_commands)

    def test_messages_are_in_the_source(self):
        self.expect_none(wrong_messages)

    def test_code_compiles(self):
        self.expect_none(wrong_code)

    def test_lines_can_be_read(self):
        self.expect_none(wide_lines)

    def test_pages_agree_on_what_was_measured(self):
        shown = ratios(PAGES["README.md"].text, r"\| 2 hosts x \d \|")
        self.assertEqual(len(shown), 18)
        text = PAGES["tests/bench/README.md"].text
        newest = text[text.index("The newest race"):text.index("The same race")]
        self.assertEqual(ratios(newest, r"\| `tutti"), shown)

    def test_readme_is_short(self):
        self.assertEqual(list(wrong_length(PAGES["README.md"], README_LINES)), [])

    def test_floors_are_those_of_the_tidy_test(self):
        self.assertEqual(list(wrong_floors(PAGES["docs/architecture.md"])), [])

    def test_links_of_rooms_are_those_of_cmake(self):
        self.assertEqual(list(wrong_room_links(PAGES["docs/architecture.md"])), [])

    def test_a_kind_is_named_in_few_files(self):
        for kind in ("StrategyKind::ring", "StrategyKind::tree", "Collective::all_to_all",
                     "Collective::reduce_scatter", "Dtype::bf16"):
            with self.subTest(kind):
                files = files_that_name(kind)
                self.assertTrue(0 < len(files) <= KIND_FILES, files)

    def test_settings_are_those_of_the_agent(self):
        self.assertEqual(list(wrong_settings(PAGES["docs/configuration.md"])), [])

    def test_every_page_can_be_reached_from_the_readme(self):
        reached, new = set(), {"README.md"}
        while new:
            reached |= new
            new = {linked for path in new for linked in pages_linked_from(PAGES[path])} - reached
        self.assertEqual(sorted(set(PAGES) - reached), [])

    def test_generated_pages_are_up_to_date(self):
        done = subprocess.run([sys.executable, str(ROOT / "docs/generate"), "--check"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class EachCheckCanFail(unittest.TestCase):
    def expect_one(self, check, text):
        self.assertEqual(len(list(check(page_of(text)))), 1, text)

    def test_links(self):
        for text in ("[x](absent.md)", "[x](limits.md#absent)", "[x](#absent)", "[x](../absent)"):
            self.expect_one(wrong_links, text)
        self.assertEqual(list(wrong_links(page_of("[x](limits.md#tensors) `[a](b)`"))), [])

    def test_names(self):
        for name in ("daemon/absent/absent.h", "absent_file.cc", "--absent-flag", "TUTTI_ABSENT",
                     "absent_setting", "tutti absent", "tutti run --absent", "deploy/absent now",
                     "deamon/base/status.h", "tests/<room>/*_absent.cc", "Group.absent_verb()",
                     "tuttid --absent", "HostBoard::fold_order"):
            self.expect_one(wrong_names, f"See `{name}`.")
        for name in ("daemon/base/status.h", "ring.cc", "--keep-going", "TUTTI_RANK", "slice_bytes",
                     "tutti run --hosts 2", "tests/<room>/<subject>_test.cc", "Group.empty()",
                     "HostBoard::complete"):
            self.assertEqual(list(wrong_names(page_of(f"See `{name}`."))), [])

    def test_commands(self):
        for line in ("tutti bench --absent", "tuttid --absent=1", "tests/absent", "absent --now",
                     "tests/bench/race --absent", "deploy/build absent", "cmake --preset absent",
                     "cmake -S . -DTUTTI_ABSENT=ON", "ctest -L absent", "tests/run --absent",
                     "python3 deploy/absent.py", "build/release/bin/absent_test",
                     "cmake --build --preset release --target absent_target"):
            self.expect_one(wrong_commands, f"```sh\n{line}\n```")
        good = page_of("```sh\n# x\nA=1 sudo tutti status\n```")
        self.assertEqual(list(wrong_commands(good)), [])

    def test_messages(self):
        text = "```text\njob \"a\": rank 1 of 4 has not joined\n```"
        self.assertEqual(list(wrong_messages(page_of(text))), [])
        self.expect_one(wrong_messages, text.replace("joined", "turned up"))

    def test_code(self):
        for text in ("```python\nx = (\n```", "```c\nint x = absent;\n```",
                     "```cpp\n#include <tutti.hpp>\ntutti::Absent x;\n```",
                     "```rust\nfn main() {}\n```", "```basic\nGOTO 1\n```"):
            self.expect_one(wrong_code, text)
        self.assertEqual(list(wrong_code(page_of("```c\n#include <tutti.h>\n```"))), [])

    def test_fences(self):
        self.assertRaises(ValueError, page_of, "```sh\ntutti status\n")

    def test_lengths(self):
        self.expect_one(lambda page: wrong_length(page, 2), "a\nb\nc\n")
        self.expect_one(wide_lines, "x" * (COLUMNS + 1) + "\n|" + "x" * COLUMNS)

    def test_floors(self):
        text = PAGES["docs/architecture.md"].text
        self.expect_one(wrong_floors, text.replace("| 5 | `engine` ", "| 4 | `engine` "))
        self.expect_one(wrong_floors, text.replace("| 5 | `engine` ", "| 5 | engine "))
        less = text.replace("in the client | base, kernel |", "in the client | base |")
        self.expect_one(wrong_room_links, less)

    def test_kinds(self):
        self.assertEqual(files_that_name("StrategyKind::unknown"), [])

    def test_settings(self):
        text = PAGES["docs/configuration.md"].text
        self.expect_one(wrong_settings, text.replace("| `silence_ms` | `5000`",
                                                     "| `silence_ms` | `5001`"))
        self.expect_one(wrong_settings, text.replace("| `silence_ms` |", "| silence_ms |"))


if __name__ == "__main__":
    unittest.main()
