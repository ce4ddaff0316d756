"""What a program can change about its processor: the floating-point mode of a thread, and the
processor that libtutti takes it for."""

import contextlib
import ctypes
import mmap
import os
import platform
import struct

IS_X86 = platform.machine() == "x86_64"

_ROUNDINGS = {"nearest": 0, "down": 0x2000, "up": 0x4000, "to zero": 0x6000}
_SUBNORMALS = {"": 0, ", flush to zero": 0x8000, ", denormals are zero": 0x40}
# MXCSR's bits of each mode but the plain one, beside the masks of its exceptions.
MODES = {f"{rounding}{subnormals}": of_rounding | of_subnormals
         for rounding, of_rounding in _ROUNDINGS.items()
         for subnormals, of_subnormals in _SUBNORMALS.items() if of_rounding | of_subnormals}
MODES["nearest, flush to zero, denormals are zero"] = 0x8040
_MASKS = 0x1f80

# The kernels, the slowest first, with the features that a processor lacks where they are chosen:
# bits of __cpu_model, as GCC and Clang number them.
_USABLE_KERNELS = "_ZN5tutti14usable_kernelsEv"
_AVX2, _AVX512F = 1 << 10, 1 << 15
_LACKING = {"baseline": _AVX2 | _AVX512F, "avx2": _AVX512F, "avx512": 0}


def _function_of(code):
    """A function of the address of a number; and the memory of its instructions."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))(address), memory


if IS_X86:
    _load, _load_memory = _function_of(b"\x0f\xae\x17\xc3")  # ldmxcsr (%rdi); ret
    _store, _store_memory = _function_of(b"\x0f\xae\x1f\xc3")  # stmxcsr (%rdi); ret


def floating_point_mode():
    """That of this thread: MXCSR without the exceptions that were raised."""
    now = ctypes.c_uint32()
    _store(now)
    return now.value & ~0x3f


@contextlib.contextmanager
def in_mode(name):
    """This thread's floating-point mode is that of MODES; None: the plain one."""
    if name is None or not IS_X86:
        yield
        return
    before = floating_point_mode()
    _load(ctypes.c_uint32(_MASKS | MODES[name]))
    try:
        yield
        assert floating_point_mode() == _MASKS | MODES[name], f"the mode {name!r} was changed"
    finally:
        _load(ctypes.c_uint32(before))


class _Kernels(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p * 3), ("count", ctypes.c_size_t)]


def _symbols(path):
    """The addresses of a library's symbols, the local ones too, by name."""
    with open(path, "rb") as file:
        elf = file.read()
    sections_at, = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, sections_at + i * size)
                for i in range(count)]
    out = {}
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        names_at = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", elf, at)
            name_at = names_at + name
            out[elf[name_at:elf.index(0, name_at)].decode()] = value
    return out


def limit_kernels(path, random):
    """Lets the library at this path, loaded here, believe that the processor is one of those that
    its kernels are for, chosen by `random` among those that this processor can run. Call it before
    the library has chosen. Returns the kernel's name; "any" where that cannot be done: on other
    architectures, and where the library has no symbols."""
    path = os.path.realpath(path)
    symbols = _symbols(path) if IS_X86 else {}
    if not {"__cpu_model", _USABLE_KERNELS} <= set(symbols):
        return "any"
    with open("/proc/self/maps") as maps:
        base = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(path))
    usable = ctypes.CFUNCTYPE(_Kernels)(base + symbols[_USABLE_KERNELS])
    names = list(_LACKING)[:usable().count]
    name = names[random.integers(len(names))]
    features = ctypes.c_uint32.from_address(base + symbols["__cpu_model"] + 12)
    features.value &= ~_LACKING[name]
    assert usable().count == names.index(name) + 1, (name, usable().count)
    return name
