"""The exception of the package."""


class Error(RuntimeError):
    """Raised by every call that fails.

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


def text_of(error):
    """What an exception says, for other ranks."""
    try:
        return str(getattr(error, "message", None) or f"{type(error).__name__}: {error}")
    except Exception:  # Of its own text.
        return type(error).__name__


def invalid(message):
    """An Error about a wrong argument, to raise."""
    return Error("INVALID_ARGUMENT", message)
