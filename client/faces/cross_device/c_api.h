/* The C ABI of tutti::cross_device, for language bindings: see cross_device_ops.h for what the
 * calls do, and client/faces/frameworks/c_api.h for errors. Pointers that are passed are only read,
 * and only until the call returns. Where one is wrong, the other ranks of the group learn of it. */
#pragma once

#include "client/faces/frameworks/c_api.h"

#if defined(__cplusplus)
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tutti_devices {
  const char* const* names;
  size_t count;
} tutti_devices;

/* A value and where its sum goes. */
typedef struct tutti_reduction {
  const tutti_component* components;
  size_t count;
  tutti_devices destinations;
} tutti_reduction;

/* tf.distribute's CommunicationOptions. */
typedef struct tutti_communication_options {
  int64_t bytes_per_pack;
  int32_t has_timeout;
  double timeout_seconds;
  const char* implementation;
  int32_t reproducible; /* As in tutti_options. */
} tutti_communication_options;

/* INVALID_ARGUMENT: a field is wrong. */
tutti_code tutti_communication_options_check(const tutti_communication_options* options);
/* An object of one of the classes. It does not own `group`, which may be NULL. */
typedef struct tutti_cross_device tutti_cross_device;
/* `num_packs` NULL: no packing. */
tutti_code tutti_hierarchical_copy_create(const int64_t* num_packs, tutti_group* group,
                                          tutti_cross_device** ops);
/* `reduce_to_device` NULL: the first destination. */
tutti_code tutti_reduction_to_one_device_create(const char* reduce_to_device, tutti_group* group,
                                                tutti_cross_device** ops);
void tutti_cross_device_free(tutti_cross_device* ops);

/* `op`: "sum" or "mean", in letters of either case. */
tutti_code tutti_cross_device_reduce(const tutti_cross_device* ops, const char* op,
                                     const tutti_reduction* reduction,
                                     const tutti_communication_options* options,
                                     tutti_results** results);
tutti_code tutti_cross_device_batch_reduce(const tutti_cross_device* ops, const char* op,
                                           const tutti_reduction* reductions, size_t count,
                                           const tutti_communication_options* options,
                                           tutti_results** results);
/* The component's device is ignored. */
tutti_code tutti_cross_device_broadcast(const tutti_cross_device* ops,
                                        const tutti_component* component,
                                        const tutti_devices* destinations, int32_t root,
                                        const tutti_communication_options* options,
                                        tutti_results** results);

#pragma GCC visibility pop
#if defined(__cplusplus)
}
#endif
