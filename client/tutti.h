/* Tutti's C ABI: join a job through the node's daemon, and run collectives on ordinary buffers.
 *
 *   tutti_group* group = NULL;
 *   if (tutti_join(NULL, &group) != TUTTI_OK)  // All from TUTTI_* in the environment.
 *     fprintf(stderr, "%s\n", tutti_last_error()->message);
 *   tutti_all_reduce(group, x, x, 1024, TUTTI_F32, TUTTI_MEAN, NULL, NULL);
 *   tutti_group_free(group);
 *
 * Every function that returns a tutti_code returns TUTTI_OK or the reason, whose words are in
 * tutti_last_error(). Nothing is thrown: RESOURCE_EXHAUSTED where this process is out of memory.
 * NULL where a handle or a result's place is needed is INVALID_ARGUMENT. Functions may be called
 * from any thread; the ranks of a group must issue its operations in the same order. A child made
 * by fork() must join anew.
 *
 * BUFFERS. Any ordinary memory is accepted: it is copied to memory shared with the daemon when the
 * operation is submitted and back when its work is waited for. Memory from tutti_alloc() is shared
 * already and never copied; it must not be read or written until the work is done. `in` and `out`
 * may be the same buffer (in place) where they have the same size. What an output holds after a
 * failure is undefined.
 *
 * WORK. With `work` NULL a call blocks until the operation is done and returns its result. Else the
 * call returns at once and `*work` must be given to tutti_work_free() in the end.
 * At most 256 operations of a group are under way: a further call waits for the oldest. A group has
 * at most 2^40 - 256 in all; then RESOURCE_EXHAUSTED on every rank: join again, or make a
 * sub-group.
 *
 * A call that is refused here (a NULL buffer, say) keeps its place in the order of operations: it
 * fails for the other ranks, too. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/tutti_types.h"

#if defined(__cplusplus)
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A group of ranks: the whole job, or a sub-group of it. */
typedef struct tutti_group tutti_group;
/* An operation under way. */
typedef struct tutti_work tutti_work;

/* Why a call failed. */
typedef struct tutti_error {
  tutti_code code;
  int32_t rank;     /* The rank to blame; -1: nobody in particular. */
  const char* host; /* The host to blame; "" where none is. */
  const char* message;
} tutti_error;

/* The last failure of a call on this thread, valid until its next one; never NULL. */
const tutti_error* tutti_last_error(void);
/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for a number that is no code. */
const char* tutti_code_name(tutti_code code);
/* Bytes of one element; 0 for a number that is no dtype. */
size_t tutti_dtype_size(tutti_dtype dtype);

/* ---- Joining and leaving ---- */

/* Set `size` to sizeof(tutti_join_options); see tutti_join_defaults(). INVALID_ARGUMENT: no size
 * the struct ever had. Fields of a newer header than the library's are ignored. */
typedef struct tutti_join_options {
  size_t size;
  const char* socket; /* The agent's. NULL: TUTTI_SOCKET, else /run/tutti/tuttid.sock. */
  const char* job;    /* NULL: TUTTI_JOB. */
  const char* token;  /* NULL: TUTTI_TOKEN, else none. */
  int32_t rank;       /* -1: TUTTI_RANK. */
  int32_t world_size; /* -1: TUTTI_WORLD_SIZE. */
  /* How long to wait for the other ranks, and the default of each operation. -1: TUTTI_TIMEOUT (in
   * seconds, fractions allowed), else 30 s. */
  int32_t timeout_ms;
} tutti_join_options;

static inline tutti_join_options tutti_join_defaults(void) {
  const tutti_join_options options = {sizeof(tutti_join_options), NULL, NULL, NULL, -1, -1, -1};
  return options;
}

/* Joins the job and waits until all its ranks have. `options` may be NULL. UNAVAILABLE: no agent at
 * the socket; DEADLINE_EXCEEDED: ranks are missing (the message names them); otherwise the reason
 * why the agent refuses. */
tutti_code tutti_join(const tutti_join_options* options, tutti_group** group);

/* Leaves: the other ranks learn that this one went on purpose; what is under way ends CANCELLED. Of
 * a sub-group: only this handle asks for nothing more. Nobody is told, and what is under way goes
 * on; if the others ask for more there, that fails at its deadline and names this rank. The handle
 * and memory from tutti_alloc() stay valid. FAILED_PRECONDITION: it was left already. */
tutti_code tutti_leave(tutti_group* group);

/* Frees the handle, leaving first if need be. NULL is fine. Memory from tutti_alloc() goes with the
 * last handle (group or work) of the job. */
void tutti_group_free(tutti_group* group);

/* A group of some ranks of the job, in this order; every member calls it, with the same ranks.
 * `group` must be the whole job. The new group's ranks are positions in `ranks`. */
tutti_code tutti_subgroup(tutti_group* group, const uint32_t* ranks, size_t count,
                          tutti_group** subgroup);

/* Of NULL: -1, 0, 0 and NULL. */
int32_t tutti_rank(const tutti_group* group);
int32_t tutti_world_size(const tutti_group* group);
/* Counts the job's rosters: a job whose ranks join anew has a higher one. */
uint32_t tutti_epoch(const tutti_group* group);
/* The name of the host a rank of the group runs on; NULL: no such rank. Valid as long as `group`.
 */
const char* tutti_host_of(const tutti_group* group, int32_t rank);

/* ---- Memory shared with the daemon ---- */

/* `bytes` bytes, aligned to 64; NULL (RESOURCE_EXHAUSTED) where the segment is full. An operation
 * on more than a block has is INVALID_ARGUMENT. */
void* tutti_alloc(tutti_group* group, size_t bytes);
/* Gives memory of tutti_alloc() back, at the latest when no operation uses it. NULL is fine. */
void tutti_free(tutti_group* group, void* memory);

/* ---- Collectives ---- */

/* Set `size` to sizeof(tutti_options); see tutti_defaults() and tutti_join_options. */
typedef struct tutti_options {
  size_t size;
  /* "ring", "tree:K", "centralized", "auto", or "LOCAL,GLOBAL". NULL: the job's, else auto. */
  const char* strategy;
  int32_t timeout_ms; /* <= 0: the default given at the join. */
} tutti_options;

static inline tutti_options tutti_defaults(void) {
  const tutti_options options = {sizeof(tutti_options), NULL, 0};
  return options;
}

/* Integers wrap, and have no MEAN. Of TUTTI_BOOL, SUM and MAX are true where any is, PROD and MIN
 * where all are; results are 0 or 1. */

/* out[i] = op over all ranks' in[i], on every rank. `count` elements on both sides. */
tutti_code tutti_all_reduce(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, tutti_op op, const tutti_options* options,
                            tutti_work** work);

/* tutti_all_reduce of `size` tensors at once, as one work: outs[i] = op over all ranks' ins[i], of
 * counts[i] elements (0 is fine). A list is one operation: thousands of small tensors cost little
 * more than one large one. On one host its tensors are not copied where all are memory of
 * tutti_alloc(). Else they pass block by block where the call blocks, and are copied end to end
 * where it does not; between hosts such a call blocks after all where the segment has no room for
 * the copy, so ranks then must make their calls on all groups in one order. All ranks must list the
 * same counts in the same order: FAILED_PRECONDITION otherwise, for everyone. The arrays may go
 * when the call returns; the buffers must stay until the work is done.
 *
 * A list has at most 2^24 - 1 tensors. Where the work fails, what the outputs hold is undefined.
 *
 * Every rank gets the same bits, and every run of the same calls. But where hosts reduce with a
 * strategy that associates differently from place to place (ring), a tensor's bits may differ from
 * those that tutti_all_reduce gives it alone. */
tutti_code tutti_all_reduce_many(tutti_group* group, const void* const* ins, void* const* outs,
                                 const size_t* counts, size_t size, tutti_dtype dtype, tutti_op op,
                                 const tutti_options* options, tutti_work** work);

/* As tutti_all_reduce, but only `root` has an output; elsewhere `out` is ignored. */
tutti_code tutti_reduce(tutti_group* group, const void* in, void* out, size_t count,
                        tutti_dtype dtype, tutti_op op, int32_t root, const tutti_options* options,
                        tutti_work** work);

/* Every rank's buffer becomes the root's; the root's is only read. */
tutti_code tutti_broadcast(tutti_group* group, void* buffer, size_t count, tutti_dtype dtype,
                           int32_t root, const tutti_options* options, tutti_work** work);

/* `in`: `count` elements; `out`: count * world_size, rank r's input at r * count. In place:
 * in == out + rank * count. */
tutti_code tutti_all_gather(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, const tutti_options* options, tutti_work** work);

/* `in`: count * world_size elements; `out`: `count`, those at rank * count of the reduced whole. In
 * place: out == in + rank * count. */
tutti_code tutti_reduce_scatter(tutti_group* group, const void* in, void* out, size_t count,
                                tutti_dtype dtype, tutti_op op, const tutti_options* options,
                                tutti_work** work);

/* Done when every rank has come. */
tutti_code tutti_barrier(tutti_group* group, const tutti_options* options, tutti_work** work);

/* ---- Work ---- */

/* Waits for the result, and copies it out. `timeout_ms` < 0: until the operation's own time is up.
 * DEADLINE_EXCEEDED while tutti_work_done() is 0 means that the work is still under way and may be
 * waited for again. */
tutti_code tutti_work_wait(tutti_work* work, int32_t timeout_ms);
/* 1 where tutti_work_wait() would not block, else 0. */
int tutti_work_done(tutti_work* work);
/* Frees the handle. An operation that was not waited for goes on, but its output is lost unless it
 * is memory from tutti_alloc(). NULL is fine. */
void tutti_work_free(tutti_work* work);

#pragma GCC visibility pop
#if defined(__cplusplus)
}
#endif
