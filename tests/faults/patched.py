"""Copies of tuttid and tutti-worker that speak another protocol version to other nodes: the number
is changed where it is put into messages."""

import os
import pathlib
import re
import shutil
import subprocess

# Where a message gets the version: an agent's registration and report, and its workers' joins.
PLACES = {"tuttid": ("GrpcControlServer::follow", r"Agent::report\("),
          "tutti-worker": ("StreamCoordinatorClient::",)}


def listing(program):
    return subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", program], text=True,
                          capture_output=True, check=True).stdout


def version_of(program):
    said = subprocess.run([program, "--version"], text=True, capture_output=True, check=True).stdout
    return int(re.search(r"protocol (\d+)", said)[1])


def other_version(source):
    """The version that the copies of programs from this source tree speak."""
    said = (source / "proto/segment.h").read_text()
    return int(re.search(r"kProtocolVersion = (\d+);", said)[1]) + 1


def stores_of(text, function, number):
    """Addresses of `movl $number, somewhere` in functions of this name."""
    inside = False
    for line in text.splitlines():
        if line.endswith(">:"):
            inside = re.search(function, line) is not None
        elif inside and re.search(rf"\tmovl +\${number:#x},", line):
            yield int(line.split(":")[0], 16)


def offset_of(program, address):
    """Where the file has what is loaded at an address."""
    headers = subprocess.run(["readelf", "-lW", program], text=True, capture_output=True,
                             check=True).stdout
    for offset, virtual, size in re.findall(
            r"LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+)", headers):
        if int(virtual, 16) <= address < int(virtual, 16) + int(size, 16):
            return int(offset, 16) + address - int(virtual, 16)
    raise ValueError(f"{program} has nothing at {address:#x}")


def speak_another_version(source, target):
    """Copies both programs; the copies' version is the next one."""
    number = version_of(source / "tuttid")
    for name, functions in PLACES.items():
        program = target / name
        shutil.copy2(source / name, program)
        text, patched = listing(program), 0
        with program.open("r+b") as file:
            for function in functions:
                for address in stores_of(text, function, number):
                    at = offset_of(program, address)
                    file.seek(at)
                    code = bytearray(file.read(16))
                    end = code.index(number.to_bytes(4, "little"))
                    file.seek(at + end)
                    file.write((number + 1).to_bytes(4, "little"))
                    patched += 1
        if not patched:
            raise LookupError(f"{name}: found no place that says the protocol version")
