/* What all systems in libtutti_frameworks.so share in their C ABI. The functions of a system are in
 * its own c_api.h; the library is internal to the language bindings of this version.
 *
 * ERRORS. A function that returns a tutti_code returns TUTTI_OK or the reason of the failure;
 * tutti_frameworks_last_error() then has the message, also where it was a function of libtutti.so
 * that failed. No function throws. */
#pragma once

#include "client/tutti.h"

#if defined(__cplusplus)
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The version of the library, such as "0.1.0". Static. */
const char* tutti_frameworks_version(void);
/* The last failure on this thread of a function of this library: see tutti_last_error(). */
const tutti_error* tutti_frameworks_last_error(void);

/* What a binding calls in place of a call of all ranks of a group (NULL: none) where it refuses the
 * arguments itself, before it raises: the other ranks fail that call with INVALID_ARGUMENT,
 * `message` and this rank's number, and all stay in step. Returns INVALID_ARGUMENT with `message`.
 */
tutti_code tutti_frameworks_refuse(tutti_group* group, const char* message);

/* A tensor in C order in host memory. What is passed is borrowed, and only read until the call
 * returns. */
typedef struct tutti_tensor_view {
  const void* data; /* NULL only without elements. */
  const int64_t* shape;
  size_t rank; /* Number of sizes in `shape`. */
  int32_t dtype;
} tutti_tensor_view;

/* One component of a value that is on several devices. */
typedef struct tutti_component {
  tutti_tensor_view elements; /* The tensor, or the values of slices. */
  int32_t is_sparse;
  tutti_tensor_view indices;  /* Of slices. */
  const int64_t* dense_shape; /* Of slices; NULL: not known. */
  size_t dense_rank;
  const char* device;
} tutti_component;

/* The results of a call: a list of values with a component for each device of this process. A
 * tensor is a value of one component. */
typedef struct tutti_results tutti_results;
size_t tutti_results_size(const tutti_results* results);
size_t tutti_results_components(const tutti_results* results, size_t value);
/* A component, whose pointers are valid until `results` is freed; its elements may be written to.
 * OUT_OF_RANGE: there is no such component. */
tutti_code tutti_results_get(const tutti_results* results, size_t value, size_t component,
                             tutti_component* view);
void tutti_results_free(tutti_results* results);

#pragma GCC visibility pop
#if defined(__cplusplus)
}
#endif
