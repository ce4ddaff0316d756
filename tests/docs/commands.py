"""Commands as pages show them, held against what the programs say of themselves."""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

from pages import ROOT

# Programs of the system: only the paths among their arguments are checked.
FOREIGN = ("python3", "pip", "apt", "docker", "kubectl", "systemctl", "install", "git", "openssl",
           "nft", "torchrun", "mpirun", "srun")
PREFIX = tempfile.TemporaryDirectory()
LABELS = r"-L (unit|mesh|root|gpu)\b"


def binary(name):
    return os.path.join(os.environ["TUTTI_BIN"], name)


@functools.lru_cache(maxsize=None)
def include_flag():
    """For compilers: where the headers of C and C++ lie, as users have them."""
    subprocess.run(["cmake", "--install", os.path.dirname(os.environ["TUTTI_BIN"]), "--prefix",
                    PREFIX.name, "--component", "development"], check=True, capture_output=True)
    return f"-I{PREFIX.name}/include"


@functools.lru_cache(maxsize=None)
def help_of(*command, flag="--help"):
    """What a program prints for --help, or another flag."""
    done = subprocess.run([*command, flag], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{command} --help fails: {done.stderr}")
    return done.stdout


def flags_in(text):
    """The flags that a text names, also those of shell scripts."""
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", text))


def split_commands(text):
    """The commands of a block of shell, as lists of words."""
    for line in text.replace("\\\n", " ").split("\n"):
        words = shlex.split(line, comments=True)
        while words and (words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=.*", words[0])):
            words = words[1:]
        if words:
            yield words


def refuse_flags(words, known, program):
    """Why one of the flags is not the program's, or ""."""
    for word in words:
        flag = word.split("=")[0]
        if re.match(r"--?[a-z]", word) and flag not in known:
            return f"{program} has no flag {flag}"
    return ""


def refuse_tutti(words):
    if len(words) < 2 or words[1].startswith("-"):
        return refuse_flags(words[1:], flags_in(help_of(binary("tutti"))), "tutti")
    if words[1] not in re.findall(r"(?m)^  (\w+) ", help_of(binary("tutti"))):
        return f"tutti has no command {words[1]}"
    own = words[2:words.index("--")] if "--" in words else words[2:]
    text = help_of(binary("tutti"), words[1]).split("Examples:")[0]
    return refuse_flags(own, flags_in(text), f"tutti {words[1]}")


def refuse_script(words, tree):
    """A script of the repository: it exists, and knows the flags."""
    path = ROOT / words[0]
    if not path.is_file() or not os.access(path, os.X_OK):
        return f"{words[0]} is no program here"
    text = path.read_text(encoding="utf-8")
    if words[0] == "tests/run" and "-L" not in words:
        text += " -R "  # What ctest takes.
    known = flags_in(help_of(sys.executable, str(path)) if "python" in text[:40] else text)
    return refuse_flags(words[1:], known, words[0]) or refuse_preset(words)


def refuse_preset(words):
    """Presets that CMakePresets.json does not have; deploy/build takes one as it is."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
    kind = "workflow" if "--workflow" in words else "build" if "--build" in words else "configure"
    names = {preset["name"] for preset in presets[f"{kind}Presets"]}
    named = [after for word, after in zip(words, words[1:]) if word == "--preset"]
    if words[0] == "deploy/build":
        named += words[1:2]
    wrong = [name for name in named if name not in names]
    return f"there is no {kind} preset {wrong[0]}" if wrong else ""


def refuse_built(words, tree):
    """A program of a build folder."""
    name = os.path.basename(words[0])
    if name == "tutti":
        return refuse_tutti(words)
    if name in ("tuttid", "micro", *tree.programs()):
        return ""
    return f"no build makes {name}"


def refuse_cmake(words, tree):
    for word in words:
        option = re.match(r"-D(TUTTI_\w+)", word)
        if option and option[1] not in tree.words:
            return f"there is no option {option[1]}"
    if "--target" in words and words[words.index("--target") + 1] not in tree.words:
        return f"there is no target {words[words.index('--target') + 1]}"
    return refuse_preset(words)


def refuse_paths(words, tree):
    """Arguments that begin as the repository's folders do must be there."""
    for word in words[1:]:
        if word.split("/")[0] in tree.FOLDERS and "/" in word and not tree.has(word):
            return f"there is no {word}"
    return ""


def refuse(words, tree):
    """Why a command is wrong, or ""."""
    program = words[0]
    if program == "tutti":
        wrong = refuse_tutti(words)
    elif program == "tuttid":
        known = flags_in(help_of(binary("tuttid"), flag="--help-all"))
        wrong = refuse_flags(words[1:], known, program)
    elif program.startswith("build/"):
        wrong = refuse_built(words, tree)
    elif program.split("/")[0] in (*tree.FOLDERS, "docs", ".ci"):
        wrong = refuse_script(words, tree)
    elif program == "cmake":
        wrong = refuse_cmake(words, tree)
    elif program == "ctest":
        labelled = "-L" not in words or re.search(LABELS, " ".join(words))
        wrong = "" if labelled else "no test has this label"
    else:
        wrong = "" if program in FOREIGN else f"{program} is no program that pages may use"
    return wrong or refuse_paths(words, tree)
