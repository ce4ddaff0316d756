"""What a call failed with."""


class Error(RuntimeError):
    """A failure with a canonical code.

    code: its name, such as "FAILED_PRECONDITION". rank, host: who is to blame, or None.
    """

    def __init__(self, code, message, rank=None, host=None):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.rank = rank
        self.host = host

    def __reduce__(self):
        return Error, (self.code, self.message, self.rank, self.host)


def invalid(message):
    return Error("INVALID_ARGUMENT", message)
