/* Strategies, resolvers and device assignments (strategy.h, resolver.h, device_assignment.h) for
 * the skins in other languages. Internal to the language bindings of this version; see
 * client/faces/frameworks/c_api.h for errors.
 *
 * What describes a cluster crosses as JSON, tensors cross as memory. A text that a function returns
 * is freed with tutti_distribute_free_text(). Handles are freed by the function of their name with
 * _free, which takes NULL, too. */
#pragma once

#include "client/faces/frameworks/c_api.h"

#if defined(__cplusplus)
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Clusters ---- */

/* Options of json_api.h by "kind": "simple", "tf_config", "slurm", "kubernetes", "union",
 * "torchrun" or "mpi". `parts` are the resolvers of a union; they may be freed before it. */
typedef struct tutti_distribute_resolver tutti_distribute_resolver;
tutti_code tutti_distribute_resolver_create(const char* options,
                                            const tutti_distribute_resolver* const* parts,
                                            size_t part_count, tutti_distribute_resolver** made);
void tutti_distribute_resolver_free(tutti_distribute_resolver* resolver);
/* {"get": "cluster_spec"} and so on: json_api.h. */
tutti_code tutti_distribute_resolver_ask(const tutti_distribute_resolver* resolver,
                                         const char* question, char** answer);
/* Topologies and device assignments: json_api.h. */
tutti_code tutti_distribute_assignment(const char* question, char** answer);
void tutti_distribute_free_text(char* text);

/* ---- Batches (input_context.h) ---- */

tutti_code tutti_distribute_batch_size(int64_t global_batch_size, int32_t replicas, int64_t* size);
/* The rows of a replica are bounds[0] to bounds[1] - 1. */
tutti_code tutti_distribute_rows(int64_t rows, int32_t replica, int32_t replicas, int64_t* bounds);

/* ---- Strategies ---- */

typedef struct tutti_distribute_strategy tutti_distribute_strategy;
/* A replica within its function. */
typedef struct tutti_distribute_replica tutti_distribute_replica;

/* How the leaves of a call are nested, how long it may take, and how it reduces. */
typedef struct tutti_distribute_call {
  const char* structure; /* The same on all ranks. */
  int32_t timeout_ms;    /* 0: that of the join. */
  int32_t reproducible;  /* As in tutti_options; 0: as the strategy's options say. */
} tutti_distribute_call;

/* `options`: {"device_assignment": ..., "local_replicas": 1, "job": "", "timeout_ms": -1,
 * "reproducible": 0}, the last as in tutti_options.
 * `resolver` and `group` may be NULL; `group` must outlive the strategy. */
tutti_code tutti_distribute_strategy_create(const char* options,
                                            const tutti_distribute_resolver* resolver,
                                            tutti_group* group, tutti_distribute_strategy** made);
void tutti_distribute_strategy_free(tutti_distribute_strategy* strategy);
/* At the exit of the program: leaves the job that the strategy has joined. Frees nothing, so that
 * threads may be within calls. */
void tutti_distribute_strategy_leave_job(const tutti_distribute_strategy* strategy);
/* {"num_replicas_in_sync": 4, "local": [0, 1], "rank": 0, "world_size": 2, "devices": [[...]]}: the
 * names of devices are by local replica and logical device. */
tutti_code tutti_distribute_strategy_describe(const tutti_distribute_strategy* strategy,
                                              char** description);
tutti_code tutti_distribute_strategy_enter(tutti_distribute_strategy* strategy);
tutti_code tutti_distribute_strategy_leave(tutti_distribute_strategy* strategy);
/* Those of this thread's context; NULL: none. */
tutti_distribute_strategy* tutti_distribute_current_strategy(void);
tutti_distribute_replica* tutti_distribute_current_replica(void);
/* OK in cross-replica context; `call` names what needs it. */
tutti_code tutti_distribute_strategy_require_cross_replica(
    const tutti_distribute_strategy* strategy, const char* call);

/* A call that a skin refuses fails on all ranks, or they would wait for this one, or take its next
 * call for this one. In place of a collective of the strategy, or of the current replica; of a
 * variable's update. Always an error: that of all. */
tutti_code tutti_distribute_refuse(const tutti_distribute_strategy* strategy, const char* message);

/* Calls `function` for each local replica; it returns 0, or another number if it failed. */
tutti_code tutti_distribute_strategy_run(tutti_distribute_strategy* strategy,
                                         int (*function)(void* argument,
                                                         tutti_distribute_replica* replica),
                                         void* argument);

/* `leaves`: `count` leaves of each local replica, leaf by leaf. `axes` may be NULL. */
tutti_code tutti_distribute_strategy_reduce(const tutti_distribute_strategy* strategy,
                                            const char* op, const tutti_tensor_view* leaves,
                                            size_t count, const int64_t* axes, size_t axis_count,
                                            const tutti_distribute_call* call,
                                            tutti_results** results);
tutti_code tutti_distribute_strategy_gather(const tutti_distribute_strategy* strategy, int64_t axis,
                                            const tutti_tensor_view* leaves, size_t count,
                                            const tutti_distribute_call* call,
                                            tutti_results** results);
/* `leaves`: one of each. */
tutti_code tutti_distribute_strategy_broadcast(const tutti_distribute_strategy* strategy, int root,
                                               const tutti_tensor_view* leaves, size_t count,
                                               const tutti_distribute_call* call,
                                               tutti_results** results);
/* `devices`: how many a replica has. */
tutti_code tutti_distribute_split(const tutti_tensor_view* tensor, const int64_t* dimensions,
                                  size_t dimension_count, int devices, tutti_results** results);

/* From 0; -1 for NULL. */
int tutti_distribute_replica_index(const tutti_distribute_replica* replica);
tutti_code tutti_distribute_replica_all_reduce(tutti_distribute_replica* replica, const char* op,
                                               const tutti_tensor_view* leaves, size_t count,
                                               const tutti_distribute_call* call,
                                               tutti_results** results);
tutti_code tutti_distribute_replica_all_gather(tutti_distribute_replica* replica, int64_t axis,
                                               const tutti_tensor_view* leaves, size_t count,
                                               const tutti_distribute_call* call,
                                               tutti_results** results);
/* Calls `merge` once in this process; it returns 0, or another number if it failed. */
tutti_code tutti_distribute_replica_merge(tutti_distribute_replica* replica, const char* call,
                                          int (*merge)(void* argument), void* argument);

/* ---- Variables ---- */

typedef struct tutti_distribute_variable tutti_distribute_variable;
/* The strategy must outlive the variable. */
tutti_code tutti_distribute_variable_create(tutti_distribute_strategy* strategy,
                                            const tutti_tensor_view* initial, const char* name,
                                            const char* synchronization, const char* aggregation,
                                            tutti_distribute_variable** made);
void tutti_distribute_variable_free(tutti_distribute_variable* variable);
/* `update`: "assign", "assign_add" or "assign_sub". */
tutti_code tutti_distribute_variable_update(tutti_distribute_variable* variable, const char* update,
                                            const tutti_tensor_view* values, size_t count);
tutti_code tutti_distribute_variable_refuse(tutti_distribute_variable* variable,
                                            const char* message);
tutti_code tutti_distribute_variable_value(const tutti_distribute_variable* variable,
                                           tutti_results** value);
/* Copies of the copies of this process's replicas. */
tutti_code tutti_distribute_variable_copies(const tutti_distribute_variable* variable,
                                            tutti_results** copies);

#pragma GCC visibility pop
#if defined(__cplusplus)
}
#endif
