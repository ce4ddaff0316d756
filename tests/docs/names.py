"""What pages put between backticks: paths, flags, variables, commands and names of the source."""

import re

import commands

PROGRAMS = ("tutti", "tuttid", "cmake", "ctest")
# Beginnings of paths that are no folders of the repository.
ELSEWHERE = ("build", "share", "")
# Words of examples and of the world outside.
FOREIGN_WORDS = {"ltutti", "PascalCase"}


def is_command(span):
    words = span.split()
    path = re.match(r"(deploy|tests|docs|build)/", span)
    return len(words) > 1 and (words[0] in PROGRAMS or path is not None)


def refuse_path(span, tree):
    """For something with a slash in it."""
    first = span.split("/")[0]
    if first in tree.top and first != "build":
        return "" if tree.has(span) else f"there is no {span}"
    if first in ELSEWHERE or "://" in span or span in tree.text:
        return ""
    return f"there is no {span}, nor a folder {first}"


def refuse_words(span, tree):
    """For names: each word must be in the source."""
    for word in re.findall(r"[A-Za-z_]\w+", span):
        known = word in tree.words or word in FOREIGN_WORDS
        if not known and not word.endswith("_"):
            return f"nothing in the source is called {word}"
    for owner, member in re.findall(r"(\w+)::(\w+)", span):
        if not tree.has_member(owner, member):
            return f"{owner} has no {member}"
    return ""


# What differs from one message to the next.
VALUES = re.compile(r"\([^)]*\)|'[^']*'|\"[^\"]*\"|\b(?:ranks?|host|epoch) [\w.]+|\S*\d\S*|/\S+"
                    r"|\b(?:sum|ms|[a-z]+_[a-z]+|Connection reset by peer)\b|[:;,]")


def refuse_message(line, tree):
    """For an error's text: what is left without values must be in the source, piece by piece."""
    source = re.sub(r'"\s*"', "", tree.text)
    for piece in VALUES.split(line):
        words = piece.strip()
        if " " in words and words not in source:
            return f"no message says {words!r}"
    return ""


def all_flags():
    """The flags of all programs that pages name."""
    helps = [commands.help_of(commands.binary("tuttid"), flag="--help-all")]
    for name in re.findall(r"(?m)^  (\w+) ", commands.help_of(commands.binary("tutti"))):
        helps.append(commands.help_of(commands.binary("tutti"), name))
    return commands.flags_in("\n".join(helps))


def refuse(span, tree):
    """Why what stands between backticks is wrong, or ""."""
    span = span.replace("\\|", "|")
    if is_command(span):
        found = [commands.refuse(words, tree) for words in commands.split_commands(span)]
        return next((wrong for wrong in found if wrong), "")
    if re.fullmatch(r"--[a-z][a-z-]*(=\S*)?", span):
        known = span.split("=")[0] in all_flags() or span in tree.text
        return "" if known else f"no program has the flag {span}"
    if re.fullmatch(r"[\w.*<>/{}-]*/[\w.*<>/{}-]*", span):
        return refuse_path(span, tree)
    if re.fullmatch(r"[\w.-]+\.(cc|h|hpp|py|md|cmake|txt|proto|conf|cu|json|yaml)", span):
        known = span in tree.names or span in tree.top or span.startswith("train")
        return "" if known else f"there is no file {span}"
    return refuse_words(span, tree)
