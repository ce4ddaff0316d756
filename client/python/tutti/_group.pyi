"""The types of _group.py. tests/python/test_types.py compares the two."""

from types import TracebackType
from typing import Any, Generic, Literal, Sequence, SupportsIndex, TypeVar, overload

import numpy

_Array = TypeVar("_Array")  # NumPy, torch, or anything else with DLPack.
_Result = TypeVar("_Result", covariant=True)
_Strategy = str | tuple[str, str] | list[str] | None

def join(job: str | None = ..., rank: SupportsIndex | None = ...,
         world_size: SupportsIndex | None = ..., timeout: float | None = ...,
         socket: str | None = ..., token: str | None = ...,
         reproducible: bool | None = ..., verify: bool | None = ...) -> Group: ...

class Work(Generic[_Result]):
    def done(self) -> bool: ...
    def fileno(self) -> int: ...
    def wait(self, timeout: float | None = ...) -> _Result: ...

class Group:
    rank: int
    world_size: int
    epoch: int
    launcher: str
    hosts: list[str]
    def __enter__(self) -> Group: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...
    def leave(self) -> None: ...
    def subgroup(self, ranks: Sequence[SupportsIndex]) -> Group: ...
    def empty(self, shape: SupportsIndex | Sequence[SupportsIndex],
              dtype: Any = ...) -> numpy.ndarray[Any, Any]: ...
    @overload
    def all_reduce(self, x: _Array, op: str = ..., strategy: _Strategy = ...,
                   out: _Array | None = ..., timeout: float | None = ...,
                   blocking: Literal[True] = ..., dtype: str | None = ...,
                   factor: float | None = ..., stream: Any = ...,
                   reproducible: bool | None = ..., verify: bool | None = ...) -> _Array: ...
    @overload
    def all_reduce(self, x: _Array, op: str = ..., strategy: _Strategy = ...,
                   out: _Array | None = ..., timeout: float | None = ..., *,
                   blocking: Literal[False], dtype: str | None = ...,
                   factor: float | None = ..., stream: Any = ...,
                   reproducible: bool | None = ..., verify: bool | None = ...) -> Work[_Array]: ...
    @overload
    def all_reduce_many(self, xs: Sequence[_Array], op: str = ..., strategy: _Strategy = ...,
                        outs: Sequence[_Array] | None = ..., timeout: float | None = ...,
                        blocking: Literal[True] = ..., dtype: str | None = ...,
                        factor: float | None = ..., stream: Any = ...,
                        reproducible: bool | None = ...,
                        verify: bool | None = ...) -> list[_Array]: ...
    @overload
    def all_reduce_many(self, xs: Sequence[_Array], op: str = ..., strategy: _Strategy = ...,
                        outs: Sequence[_Array] | None = ..., timeout: float | None = ..., *,
                        blocking: Literal[False], dtype: str | None = ...,
                        factor: float | None = ..., stream: Any = ...,
                        reproducible: bool | None = ...,
                        verify: bool | None = ...) -> Work[list[_Array]]: ...
    @overload
    def reduce(self, x: _Array, root: SupportsIndex = ..., op: str = ...,
               strategy: _Strategy = ..., out: _Array | None = ..., timeout: float | None = ...,
               blocking: Literal[True] = ..., dtype: str | None = ...,
               factor: float | None = ..., stream: Any = ...,
                   reproducible: bool | None = ...) -> _Array | None: ...
    @overload
    def reduce(self, x: _Array, root: SupportsIndex = ..., op: str = ...,
               strategy: _Strategy = ..., out: _Array | None = ..., timeout: float | None = ..., *,
               blocking: Literal[False], dtype: str | None = ...,
               factor: float | None = ..., stream: Any = ...,
                   reproducible: bool | None = ...) -> Work[_Array | None]: ...
    @overload
    def broadcast(self, x: _Array, root: SupportsIndex = ..., strategy: _Strategy = ...,
                  timeout: float | None = ..., blocking: Literal[True] = ...,
                  dtype: str | None = ..., stream: Any = ...,
                  verify: bool | None = ...) -> _Array: ...
    @overload
    def broadcast(self, x: _Array, root: SupportsIndex = ..., strategy: _Strategy = ...,
                  timeout: float | None = ..., *, blocking: Literal[False],
                  dtype: str | None = ..., stream: Any = ...,
                  verify: bool | None = ...) -> Work[_Array]: ...
    @overload
    def all_gather(self, x: _Array, strategy: _Strategy = ..., out: _Array | None = ...,
                   timeout: float | None = ..., blocking: Literal[True] = ...,
                   dtype: str | None = ..., stream: Any = ...,
                   verify: bool | None = ...) -> _Array: ...
    @overload
    def all_gather(self, x: _Array, strategy: _Strategy = ..., out: _Array | None = ...,
                   timeout: float | None = ..., *, blocking: Literal[False],
                   dtype: str | None = ..., stream: Any = ...,
                   verify: bool | None = ...) -> Work[_Array]: ...
    @overload
    def reduce_scatter(self, x: _Array, op: str = ..., strategy: _Strategy = ...,
                       out: _Array | None = ..., timeout: float | None = ...,
                       blocking: Literal[True] = ..., dtype: str | None = ...,
                       factor: float | None = ..., stream: Any = ...,
                   reproducible: bool | None = ...) -> _Array: ...
    @overload
    def reduce_scatter(self, x: _Array, op: str = ..., strategy: _Strategy = ...,
                       out: _Array | None = ..., timeout: float | None = ..., *,
                       blocking: Literal[False], dtype: str | None = ...,
                       factor: float | None = ..., stream: Any = ...,
                   reproducible: bool | None = ...) -> Work[_Array]: ...
    @overload
    def gather(self, x: _Array, root: SupportsIndex = ..., strategy: _Strategy = ...,
               out: _Array | None = ..., timeout: float | None = ...,
               blocking: Literal[True] = ..., dtype: str | None = ...,
               stream: Any = ...) -> _Array | None: ...
    @overload
    def gather(self, x: _Array, root: SupportsIndex = ..., strategy: _Strategy = ...,
               out: _Array | None = ..., timeout: float | None = ..., *, blocking: Literal[False],
               dtype: str | None = ..., stream: Any = ...) -> Work[_Array | None]: ...
    @overload
    def scatter(self, x: _Array | None, root: SupportsIndex = ..., strategy: _Strategy = ...,
                out: _Array | None = ..., timeout: float | None = ...,
                blocking: Literal[True] = ..., dtype: str | None = ...,
                stream: Any = ...) -> _Array: ...
    @overload
    def scatter(self, x: _Array | None, root: SupportsIndex = ..., strategy: _Strategy = ...,
                out: _Array | None = ..., timeout: float | None = ..., *, blocking: Literal[False],
                dtype: str | None = ..., stream: Any = ...) -> Work[_Array]: ...
    @overload
    def all_to_all(self, x: _Array, strategy: _Strategy = ..., out: _Array | None = ...,
                   timeout: float | None = ..., blocking: Literal[True] = ...,
                   dtype: str | None = ..., stream: Any = ...) -> _Array: ...
    @overload
    def all_to_all(self, x: _Array, strategy: _Strategy = ..., out: _Array | None = ...,
                   timeout: float | None = ..., *, blocking: Literal[False],
                   dtype: str | None = ..., stream: Any = ...) -> Work[_Array]: ...
    @overload
    def all_gather_v(self, x: _Array, sizes: Sequence[SupportsIndex],
               strategy: _Strategy = ..., out: _Array | None = ...,
               timeout: float | None = ..., blocking: Literal[True] = ...,
               dtype: str | None = ..., stream: Any = ...,
                     verify: bool | None = ...) -> _Array: ...
    @overload
    def all_gather_v(self, x: _Array, sizes: Sequence[SupportsIndex],
               strategy: _Strategy = ..., out: _Array | None = ...,
               timeout: float | None = ..., *, blocking: Literal[False],
               dtype: str | None = ..., stream: Any = ...,
                     verify: bool | None = ...) -> Work[_Array]: ...
    @overload
    def reduce_scatter_v(self, x: _Array, sizes: Sequence[SupportsIndex], op: str = ...,
               strategy: _Strategy = ..., out: _Array | None = ...,
               timeout: float | None = ..., blocking: Literal[True] = ...,
               dtype: str | None = ..., factor: float | None = ...,
                         stream: Any = ...,
                         reproducible: bool | None = ...) -> _Array: ...
    @overload
    def reduce_scatter_v(self, x: _Array, sizes: Sequence[SupportsIndex], op: str = ...,
               strategy: _Strategy = ..., out: _Array | None = ...,
               timeout: float | None = ..., *, blocking: Literal[False],
               dtype: str | None = ..., factor: float | None = ...,
                         stream: Any = ...,
                         reproducible: bool | None = ...) -> Work[_Array]: ...
    @overload
    def all_to_all_v(self, x: _Array, in_sizes: Sequence[SupportsIndex],
               out_sizes: Sequence[SupportsIndex],
               strategy: _Strategy = ..., out: _Array | None = ...,
               timeout: float | None = ..., blocking: Literal[True] = ...,
               dtype: str | None = ..., stream: Any = ...) -> _Array: ...
    @overload
    def all_to_all_v(self, x: _Array, in_sizes: Sequence[SupportsIndex],
               out_sizes: Sequence[SupportsIndex],
               strategy: _Strategy = ..., out: _Array | None = ...,
               timeout: float | None = ..., *, blocking: Literal[False],
               dtype: str | None = ..., stream: Any = ...) -> Work[_Array]: ...
    @overload
    def send(self, x: _Array, destination: SupportsIndex,
               tag: SupportsIndex = ...,
               timeout: float | None = ..., blocking: Literal[True] = ...,
               dtype: str | None = ..., stream: Any = ...) -> None: ...
    @overload
    def send(self, x: _Array, destination: SupportsIndex,
               tag: SupportsIndex = ...,
               timeout: float | None = ..., *, blocking: Literal[False],
               dtype: str | None = ..., stream: Any = ...) -> Work[None]: ...
    @overload
    def recv(self, x: Any, source: SupportsIndex | None = ...,
               tag: SupportsIndex = ...,
               timeout: float | None = ..., blocking: Literal[True] = ...,
               dtype: str | None = ..., stream: Any = ...) -> int: ...
    @overload
    def recv(self, x: Any, source: SupportsIndex | None = ...,
               tag: SupportsIndex = ...,
               timeout: float | None = ..., *, blocking: Literal[False],
               dtype: str | None = ..., stream: Any = ...) -> Work[int]: ...
    @overload
    def barrier(self, timeout: float | None = ..., blocking: Literal[True] = ...) -> None: ...
    @overload
    def barrier(self, timeout: float | None = ..., *, blocking: Literal[False]) -> Work[None]: ...
