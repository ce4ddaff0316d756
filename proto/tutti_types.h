/* The enumerations shared by the C ABI, shared memory, the wire and the command line. Plain C, so
 * that C, C++ and bindings read the same file. Values are frozen: add new ones, never renumber. */
#pragma once

#include <stdint.h>

/* What a call returns: gRPC's canonical status codes. */
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

/* The type of a tensor's elements. */
typedef enum tutti_dtype {
  TUTTI_F32 = 0,
  TUTTI_F64 = 1,
  TUTTI_F16 = 2,  /* IEEE 754 binary16; sums accumulate in f32. */
  TUTTI_BF16 = 3, /* The upper half of an f32; sums accumulate in f32. */
  TUTTI_I8 = 4,
  TUTTI_U8 = 5,
  TUTTI_I32 = 6,
  TUTTI_I64 = 7,
  TUTTI_BOOL = 8, /* One byte: 0 is false, any other value is true. */
  TUTTI_I16 = 9,
  TUTTI_U16 = 10,
  TUTTI_U32 = 11,
  TUTTI_U64 = 12,
  /* Not a dtype. It makes the enumeration hold any number, so that the library can refuse a wrong
   * one. */
  TUTTI_DTYPE_RANGE = 0x7fffffff
} tutti_dtype;

/* How the elements of the ranks are combined. Integers wrap around. Of TUTTI_BOOL, SUM, MAX and BOR
 * are true where any element is, PROD, MIN and BAND where all are, BXOR where an odd number is. */
typedef enum tutti_op {
  TUTTI_SUM = 0,
  TUTTI_MEAN = 1, /* The sum divided by the number of ranks. Floating-point dtypes only. */
  TUTTI_MIN = 2,
  TUTTI_MAX = 3,
  TUTTI_PROD = 4,
  TUTTI_BAND = 5, /* Bitwise and; this and the next two of integers and bools only. */
  TUTTI_BOR = 6,  /* Bitwise or. */
  TUTTI_BXOR = 7, /* Bitwise exclusive or. */
  /* The sum of the inputs, each multiplied by its rank's tutti_options.factor. Floating-point
   * dtypes only. */
  TUTTI_PREMUL_SUM = 8,
  TUTTI_OP_RANGE = 0x7fffffff /* Not an op; see TUTTI_DTYPE_RANGE. */
} tutti_op;

/* The collectives, by the names of their functions in tutti.h. */
typedef enum tutti_collective {
  TUTTI_ALL_REDUCE = 0,
  TUTTI_REDUCE = 1,
  TUTTI_BROADCAST = 2,
  TUTTI_ALL_GATHER = 3,
  TUTTI_REDUCE_SCATTER = 4,
  TUTTI_BARRIER = 5,
  TUTTI_GATHER = 6,
  TUTTI_SCATTER = 7,
  TUTTI_ALL_TO_ALL = 8
} tutti_collective;

/* How data moves among the contributors of a reduction. */
typedef enum tutti_strategy_kind {
  TUTTI_AUTO = 0,
  TUTTI_CENTRALIZED = 1,
  TUTTI_TREE = 2,
  TUTTI_RING = 3
} tutti_strategy_kind;
