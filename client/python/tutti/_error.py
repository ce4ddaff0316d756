"""The exceptions of the package."""


class Error(RuntimeError):
    """Raised by every call that fails; for a wrong argument also a ValueError.

    code: the name of one of gRPC's canonical codes, such as "FAILED_PRECONDITION". message: what
    failed, where, and what to do about it. rank, host: the rank and the name of the host to blame,
    or None.
    """

    def __init__(self, code: str, message: str, rank: int | None = None,
                 host: str | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.rank = rank
        self.host = host

    def __reduce__(self):
        return type(self), (self.code, self.message, self.rank, self.host)


class InvalidArgument(Error, ValueError):
    """A tutti.Error with the code INVALID_ARGUMENT, which is also a ValueError."""


class AlreadyExists(Error, KeyError):
    """A tutti.Error with the code ALREADY_EXISTS, which is also a KeyError."""

    __str__ = Error.__str__


class OutOfRange(Error, IndexError):
    """A tutti.Error with the code OUT_OF_RANGE, which is also an IndexError."""


_ERRORS = {"INVALID_ARGUMENT": InvalidArgument, "ALREADY_EXISTS": AlreadyExists,
           "OUT_OF_RANGE": OutOfRange}


def error_of(code, message, rank=None, host=None):
    """The Error to raise for a code's name: also a ValueError for INVALID_ARGUMENT, a KeyError for
    ALREADY_EXISTS and an IndexError for OUT_OF_RANGE."""
    return _ERRORS.get(code, Error)(code, message, rank, host)


def text_of(error):
    """What an exception says, for other ranks."""
    try:
        return str(getattr(error, "message", None) or f"{type(error).__name__}: {error}")
    except Exception:  # Of its own text.
        return type(error).__name__


def invalid(message):
    """An InvalidArgument about a wrong argument, to raise."""
    return InvalidArgument("INVALID_ARGUMENT", message)


class naming:
    """A context. An Error that is raised within begins with `what`, the argument that it is
    about."""

    def __init__(self, what):
        self._what = what

    def __enter__(self):
        pass

    def __exit__(self, kind, error, _):
        if isinstance(error, Error):
            raise error_of(error.code, f"{self._what}: {error.message}", error.rank,
                           error.host) from None
