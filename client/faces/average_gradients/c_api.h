/* The C ABI of tutti::average_gradients, for language bindings: see average_gradients.h for what
 * the call does, and client/faces/frameworks/c_api.h for values and results. */
#pragma once

#include "client/faces/frameworks/c_api.h"

#if defined(__cplusplus)
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tutti_gradient {
  const tutti_component* value; /* Its device is ignored. NULL: None. */
  const char* variable;         /* NULL: no text. */
} tutti_gradient;

typedef struct tutti_average_options {
  const char* none; /* "error", "skip" or "zeros". */
  int32_t strict;
  int32_t sum_duplicates;
  int32_t compare_variables;
  const double* clip_norm;        /* NULL: no clipping. */
  const double* clip_global_norm; /* NULL: no clipping. */
  const double* timeout_seconds;  /* NULL: that of the join. */
  const char* strategy;           /* NULL: the job's. */
  int32_t reproducible;           /* As in tutti_options. */
} tutti_average_options;

/* `gradients`: those of all towers one after the other, `lengths[i]` of tower i. The results have
 * one component for each variable, or none where no tower has a gradient. */
tutti_code tutti_average_gradients(const tutti_gradient* gradients, const size_t* lengths,
                                   size_t towers, const tutti_average_options* options,
                                   tutti_group* group, tutti_results** results);

#pragma GCC visibility pop
#if defined(__cplusplus)
}
#endif
