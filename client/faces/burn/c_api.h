/* burn's collective API (collective.h) for the skins in other languages. Internal to the language
 * bindings of this version; see client/faces/frameworks/c_api.h for errors, whose messages begin
 * with their names in burn. */
#pragma once

#include "client/faces/frameworks/c_api.h"

#if defined(__cplusplus)
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tutti_burn tutti_burn;

/* CollectiveConfig: strategies as texts; INT64_MIN and a NULL address are not set. */
typedef struct tutti_burn_config {
  int64_t num_devices;
  const char* local_all_reduce_strategy;
  const char* local_reduce_strategy;
  const char* local_broadcast_strategy;
  int64_t num_nodes;
  const char* global_address;
  const char* node_address;
  int64_t data_service_port;
  const char* global_all_reduce_strategy;
  const char* global_reduce_strategy;
  const char* global_broadcast_strategy;
} tutti_burn_config;

/* The error InvalidConfig, or OK. */
tutti_code tutti_burn_config_check(const tutti_burn_config* config);

/* `group` may be NULL, and outlives the collective. timeout_ms <= 0: the default.
 * `reproducible`: as in tutti_options. */
tutti_code tutti_burn_create(tutti_group* group, int32_t timeout_ms, int32_t reproducible,
                             tutti_burn** made);
void tutti_burn_free(tutti_burn* collective);
tutti_code tutti_burn_register(tutti_burn* collective, uint32_t peer,
                               const tutti_burn_config* config);
/* `op`: "SUM" or "MEAN". One result; of a reduce none but for the root. */
tutti_code tutti_burn_all_reduce(tutti_burn* collective, uint32_t peer,
                                 const tutti_tensor_view* tensor, const char* op,
                                 tutti_results** results);
tutti_code tutti_burn_reduce(tutti_burn* collective, uint32_t peer, const tutti_tensor_view* tensor,
                             const char* op, uint32_t root, tutti_results** results);
/* `tensor` is NULL but for the provider. */
tutti_code tutti_burn_broadcast(tutti_burn* collective, uint32_t peer,
                                const tutti_tensor_view* tensor, tutti_results** results);
/* In place of a call that the skin refuses: it fails for all peers, or they would wait for this
 * one, or take its next call for this one. Always an error. */
tutti_code tutti_burn_refuse(tutti_burn* collective, uint32_t peer, const char* message);
tutti_code tutti_burn_finish(tutti_burn* collective, uint32_t peer);
tutti_code tutti_burn_reset(tutti_burn* collective);
/* At the exit of the program: leaves the job that the collective has joined. Frees nothing, so that
 * threads may be within calls. */
void tutti_burn_leave_job(tutti_burn* collective);

#pragma GCC visibility pop
#if defined(__cplusplus)
}
#endif
