/* The numbers that cross every boundary of Tutti: the C ABI, shared memory, the wire and the
 * command line. Plain C, so that the C ABI, C++ and ctypes read the same file. Values are frozen:
 * add, never renumber. */
#pragma once

#include <stdint.h>

/* gRPC's canonical status codes. */
typedef enum tutti_code {
  TUTTI_OK = 0,
  TUTTI_CANCELLED = 1,
  TUTTI_UNKNOWN = 2,
  TUTTI_INVALID_ARGUMENT = 3,
  TUTTI_DEADLINE_EXCEEDED = 4,
  TUTTI_NOT_FOUND = 5,
  TUTTI_ALREADY_EXISTS = 6,
  TUTTI_PERMISSION_DENIED = 7,
  TUTTI_RESOURCE_EXHAUSTED = 8,
  TUTTI_FAILED_PRECONDITION = 9,
  TUTTI_ABORTED = 10,
  TUTTI_OUT_OF_RANGE = 11,
  TUTTI_UNIMPLEMENTED = 12,
  TUTTI_INTERNAL = 13,
  TUTTI_UNAVAILABLE = 14,
  TUTTI_DATA_LOSS = 15,
  TUTTI_UNAUTHENTICATED = 16
} tutti_code;

typedef enum tutti_dtype {
  TUTTI_F32 = 0,
  TUTTI_F64 = 1,
  TUTTI_F16 = 2,
  TUTTI_BF16 = 3,
  TUTTI_I8 = 4,
  TUTTI_U8 = 5,
  TUTTI_I32 = 6,
  TUTTI_I64 = 7,
  TUTTI_BOOL = 8, /* A byte: 0 is false, any other is true. */
  TUTTI_I16 = 9,
  TUTTI_U16 = 10,
  TUTTI_U32 = 11,
  TUTTI_U64 = 12,
  /* No dtype: lets the type hold any number, so that a wrong one can be refused. Likewise below. */
  TUTTI_DTYPE_RANGE = 0x7fffffff
} tutti_dtype;

typedef enum tutti_op {
  TUTTI_SUM = 0,
  TUTTI_MEAN = 1,
  TUTTI_MIN = 2,
  TUTTI_MAX = 3,
  TUTTI_PROD = 4,
  TUTTI_OP_RANGE = 0x7fffffff
} tutti_op;

typedef enum tutti_collective {
  TUTTI_ALL_REDUCE = 0,
  TUTTI_REDUCE = 1,
  TUTTI_BROADCAST = 2,
  TUTTI_ALL_GATHER = 3,
  TUTTI_REDUCE_SCATTER = 4,
  TUTTI_BARRIER = 5
} tutti_collective;

typedef enum tutti_strategy_kind {
  TUTTI_AUTO = 0,
  TUTTI_CENTRALIZED = 1,
  TUTTI_TREE = 2,
  TUTTI_RING = 3
} tutti_strategy_kind;
