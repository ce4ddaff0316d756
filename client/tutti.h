/* Tutti's C ABI: join a job through the node's daemon, and run collectives on any memory.
 *
 *   tutti_group* group = NULL;
 *   if (tutti_join(NULL, &group) != TUTTI_OK)  // Everything from TUTTI_* in the environment.
 *     fprintf(stderr, "%s\n", tutti_last_error()->message);
 *   tutti_all_reduce(group, x, x, 1024, TUTTI_F32, TUTTI_MEAN, NULL, NULL);
 *   tutti_group_free(group);
 *
 * ERRORS. A function that returns a tutti_code returns TUTTI_OK or the reason of the failure;
 * tutti_last_error() then has the message and the rank or host to blame. No function throws. Any
 * function may return RESOURCE_EXHAUSTED (this process is out of memory), INVALID_ARGUMENT (NULL
 * for a handle or the place of a result) and INTERNAL (a fault in the library). Every operation
 * ends at the latest half a second after its timeout.
 *
 * THREADS. Functions may be called from any thread, concurrently on one handle; a handle must not
 * be in use while it is freed. All ranks of a group must start its operations in the same order.
 * After fork() the child may only free the parent's handles (else FAILED_PRECONDITION), and join.
 *
 * BUFFERS. Any memory may be an input or an output. Ordinary memory is copied to memory shared with
 * the daemon before the call returns, and back when its work is waited for: an ordinary output must
 * stay valid until then. Memory from tutti_alloc() is shared already; it must not be read or
 * written until the operation has ended. `in` and `out` may be the same buffer if they have the
 * same size (in place); other overlaps only where a collective says so, else INVALID_ARGUMENT. The
 * contents of an output are undefined after a failure.
 *
 * Operations under way have no order among one another. What one of them writes is closed to all
 * others of this process, on every group, and what it reads is closed to writers: INVALID_ARGUMENT,
 * naming the operation that has the memory. Memory from tutti_alloc() and of GPUs is in use until
 * the operation has ended; ordinary memory while a call blocks, and with `buffers_stay` until the
 * work is waited for or freed. On a stream, the stream decides.
 *
 * GPUS. Buffers may lie in the memory of a GPU, at any offset in an allocation that the driver can
 * share with other processes. All ranks of an operation must then pass GPU memory
 * (FAILED_PRECONDITION), for both buffers, aligned for the dtype (INVALID_ARGUMENT). The first call
 * has the worker open the GPU, within the call's time. The worker's GPUs reduce the memory in
 * place: it must not be freed before the operation has ended, even if its work was freed. A call
 * without a stream begins when the default stream reaches it.
 *
 * WORK. If `work` is NULL, a collective blocks until the operation is done and returns its result.
 * Otherwise it returns once the operation has started, sets `*work`, and the caller must free that
 * with tutti_work_free(); `*work` is NULL after a failure. A group has at most 256 operations under
 * way; a further call waits for the oldest, until its deadline, and keeps its place in the order if
 * it fails. A group has at most 2^40 - 256 operations in all: RESOURCE_EXHAUSTED.
 *
 * REFUSALS. A collective that is refused here, for example because of a NULL buffer, keeps its
 * place in the order: it fails on the other ranks, too, naming this rank. So does a message that is
 * refused, in the order of those with its tag. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/tutti_types.h"

#if defined(__cplusplus)
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A group of ranks: those of the whole job, or of a sub-group. Freed by tutti_group_free(). */
typedef struct tutti_group tutti_group;
/* An operation that was started and can be waited for. Freed by tutti_work_free(), before or after
 * its group. */
typedef struct tutti_work tutti_work;

/* Why a call failed. */
typedef struct tutti_error {
  tutti_code code;
  int32_t rank;        /* The rank to blame; -1: none, or a worker or host is. */
  const char* host;    /* The name of the host to blame; "": none. */
  const char* message; /* What failed, where, and what to do about it. */
} tutti_error;

/* The last failure of a call on this thread. It stays valid until the next failure on this thread;
 * calls that succeed do not change it. Never NULL: before the first failure its code is TUTTI_OK.
 */
const tutti_error* tutti_last_error(void);
/* The name of a code, such as "INVALID_ARGUMENT"; "UNKNOWN" for a number that is no code. Static.
 */
const char* tutti_code_name(tutti_code code);
/* The size of one element in bytes; 0 for a number that is no dtype. */
size_t tutti_dtype_size(tutti_dtype dtype);
/* The version of this library, such as "0.1.0". Static. */
const char* tutti_version(void);

/* ---- Joining and leaving ---- */

/* What to join. Initialize it with tutti_join_defaults(); a struct without a valid `size` is
 * INVALID_ARGUMENT. A library older than the header ignores fields that it does not know. */
typedef struct tutti_join_options {
  size_t size;
  const char* socket; /* The agent's. NULL: TUTTI_SOCKET, or /run/tutti/tuttid.sock. */
  const char* job;    /* Name of the job. NULL: TUTTI_JOB, or the launcher's (see tutti_join). */
  const char* token;  /* The agents'. NULL: TUTTI_TOKEN, TUTTI_TOKEN_FILE, or none. */
  int32_t rank;       /* This rank, from 0. -1: the launcher's. */
  int32_t world_size; /* Number of ranks of the job. -1: the launcher's. */
  /* How long to wait for the other ranks, and the default timeout of the job's operations, in
   * milliseconds. -1: TUTTI_TIMEOUT (in seconds, fractions allowed), or 30 s. */
  int32_t timeout_ms;
  int32_t reserved; /* 0. */
  /* Whether reductions are reproducible (see tutti_options) where the call does not say: 1: yes;
   * -1: no; 0: if TUTTI_REPRODUCIBLE is 1. The same on all ranks. */
  int32_t reproducible;
  /* Whether results are verified (see tutti_options) where the call does not say: 1: yes; -1: no;
   * 0: if TUTTI_VERIFY is 1. The same on all ranks. */
  int32_t verify;
} tutti_join_options;

/* Options that take everything from the environment. */
static inline tutti_join_options tutti_join_defaults(void) {
  const tutti_join_options options = {
      sizeof(tutti_join_options), NULL, NULL, NULL, -1, -1, -1, 0, 0, 0};
  return options;
}

/* Joins the job and waits until all its ranks have joined. `options` may be NULL: see
 * tutti_join_defaults(). Sets `*group`, or NULL on failure. Blocks for at most the timeout and half
 * a second.
 *
 * Rank and world size that are not given are those of TUTTI_RANK and TUTTI_WORLD_SIZE, else of
 * torchrun, Open MPI, PMI or Slurm: the first that has set both. Without a name the job has the
 * launcher's, unless another job might have it, too. Errors say which variables were used.
 *
 * INVALID_ARGUMENT: an option is missing or wrong. UNAVAILABLE: no agent listens on the socket, or
 * it ended. PERMISSION_DENIED: the socket may not be opened. DEADLINE_EXCEEDED: ranks are missing,
 * by name, or the agent does not answer. UNAUTHENTICATED: the token is wrong. ALREADY_EXISTS: the
 * rank is taken. FAILED_PRECONDITION: the agent is of another version. Otherwise the agent's
 * reason. */
tutti_code tutti_join(const tutti_join_options* options, tutti_group** group);

/* Leaves the group. For the whole job: this rank's operations under way end CANCELLED, and later
 * calls on the job's groups are FAILED_PRECONDITION or CANCELLED. For a sub-group: only this handle
 * refuses further operations; later operations of the others fail at their deadline and name this
 * rank. The handle and memory from tutti_alloc() stay valid. While GPUs use this rank's memory, it
 * blocks for at most 2 s. FAILED_PRECONDITION: the group was left already. */
tutti_code tutti_leave(tutti_group* group);

/* Frees the handle; leaves the group first. NULL is allowed. Memory from tutti_alloc() is unmapped
 * with the last handle (group or work) of the job. */
void tutti_group_free(tutti_group* group);

/* Makes a group of `count` ranks of the job, whose ranks in the new group are their positions in
 * `ranks`. `group` must be the group of the whole job. Every member must call this with the same
 * list; the call does not wait for them. Sets `*subgroup`, or NULL on failure.
 *
 * INVALID_ARGUMENT: `group` is a sub-group, or the list is NULL, too long, without this rank, or
 * has a rank twice or that the job lacks. RESOURCE_EXHAUSTED: the job has 4096 groups already. */
tutti_code tutti_subgroup(tutti_group* group, const uint32_t* ranks, size_t count,
                          tutti_group** subgroup);

/* This rank in the group, from 0; -1 if `group` is NULL. */
int32_t tutti_rank(const tutti_group* group);
/* The number of ranks in the group; 0 if `group` is NULL. */
int32_t tutti_world_size(const tutti_group* group);
/* The launcher that gave rank or world size: "TUTTI_*", "torchrun", "Open MPI", "PMI" or "Slurm";
 * "" if the options did, or if `group` is NULL. Valid as long as `group`. */
const char* tutti_launcher(const tutti_group* group);
/* The epoch of the job, from 1: higher each time the ranks join again. 0 if `group` is NULL. */
uint32_t tutti_epoch(const tutti_group* group);
/* The name of the host on which a rank of the group runs, valid as long as `group`; NULL if there
 * is no such rank, or if `group` is NULL. */
const char* tutti_host_of(const tutti_group* group, int32_t rank);

/* ---- Memory shared with the daemon ---- */

/* Allocates `bytes` bytes of shared memory, aligned to 64 bytes. Operations on it copy nothing; one
 * that exceeds its block is INVALID_ARGUMENT. The contents are undefined. NULL on failure:
 * RESOURCE_EXHAUSTED if the segment is full, INVALID_ARGUMENT if `group` is NULL. */
void* tutti_alloc(tutti_group* group, size_t bytes);
/* Frees memory from tutti_alloc(), also while operations use it. NULL is allowed; other memory is
 * ignored, and tutti_last_error() says so. */
void tutti_free(tutti_group* group, void* memory);

/* The XXH3 hash, of 64 bits, of this memory. It is the same on every host. */
uint64_t tutti_checksum(const void* memory, size_t bytes);

/* ---- Collectives ---- */

/* How to run one operation. Initialize it with tutti_defaults(); `size` is as in
 * tutti_join_options. */
typedef struct tutti_options {
  size_t size;
  /* "ring", "tree:K", "centralized" or "auto", for both phases, or "LOCAL,GLOBAL". NULL: the job's
   * strategy, or "auto". All ranks must give the same. */
  const char* strategy;
  int32_t timeout_ms; /* In milliseconds, from this call. <= 0: the timeout of the join. */
  /* TUTTI_PREMUL_SUM multiplies this rank's input by it before the sum: in f64 for TUTTI_F64, else
   * in f32, and 16-bit floats are rounded once. Ranks may give different ones. Unless it is 1,
   * every input is brought to the output's shared memory or copied, also memory from tutti_alloc().
   */
  double factor;
  /* Not 0: with `work`, ordinary buffers stay as they are until the operation has ended, and the
   * caller soon waits, polls or asks for a notification. A large operation without counts by
   * rank is then passed block by block by a thread of the library, which takes about half the time
   * of an all_reduce, and less memory. If its work is freed before its end, the buffers are left
   * alone: the operation may then fail at its deadline, naming this rank, and all join again. */
  int32_t buffers_stay;
  /* Not 0: the operation, on GPU memory, starts when `stream` reaches this place, and the stream
   * goes on when it is done or has failed; the call does not wait for it, also without `work`. The
   * error is what waiting for `work` returns; without `work` the next call on the group that begins
   * after the rank has heard of it, within some milliseconds, fails with it, on every rank. */
  int32_t on_stream;
  void* stream; /* A cudaStream_t or CUstream of this process; NULL: the default stream. */
  /* 1: a reduction's result is a function of the ranks' values alone: of no strategy, number of
   * hosts, count, list, transport or device. -1: it need not be. 0: as the join says. All ranks
   * must give the same. The order is ((x0 + x1) + x2) + ... by rank of the group; 16-bit floats are
   * combined in f32 and rounded once, at the end, after the one division of TUTTI_MEAN; every NaN
   * is the one without sign and payload; of +0 and -0, min and max give the later. The result of
   * one rank is its input. Collectives that do not reduce ignore it. UNIMPLEMENTED: GPU memory of
   * several hosts, one of which has several ranks. */
  int32_t reproducible;
  /* 1: after an all_reduce, broadcast or all_gather, whose result all ranks must hold alike, the
   * ranks compare the tutti_checksum() of what they hold, by a small all_gather on the group.
   * DATA_LOSS, on every rank, names the ranks whose result is not that of the most: their memory or
   * host is damaged, or their program writes to the buffer meanwhile. A call with `work` waits for
   * its result then, so all ranks must make their calls on all groups in one order. -1: no
   * comparison. 0: as the join says, for the host's memory. All ranks must give the same. Other
   * collectives ignore it. The comparison has the call's timeout for itself. After another failure
   * than INVALID_ARGUMENT, FAILED_PRECONDITION and DATA_LOSS ranks may be out of step: join again.
   * UNIMPLEMENTED: 1 for GPU memory. */
  int32_t verify;
} tutti_options;

/* The job's strategy and timeout, the factor 1, and buffers that are copied. */
static inline tutti_options tutti_defaults(void) {
  const tutti_options options = {sizeof(tutti_options), NULL, 0, 1.0, 0, 0, NULL, 0, 0};
  return options;
}

/* Every collective takes `options` (NULL: tutti_defaults()) and `work` (NULL: the call blocks), and
 * `count` is a number of elements, which may be 0. A buffer may be NULL only if it has no elements.
 * Every rank gets the same bits, in every run with the same strategy.
 *
 * INVALID_ARGUMENT: a buffer, dtype, op, root or option is wrong, or the op is not for the dtype
 * (see tutti_op). FAILED_PRECONDITION: the ranks disagree about collective, dtype, op, root,
 * count, strategy, reproducible or verify; the message has both sides; or this rank left the group.
 * DEADLINE_EXCEEDED: a rank, which is named, has not called in time. UNAVAILABLE: a rank, worker
 * or host is gone. CANCELLED: this rank left meanwhile. RESOURCE_EXHAUSTED: no room for a copy or
 * another operation. The group stays usable, unless the message says that the job must be joined
 * again, as after every UNAVAILABLE. */

/* out[i] = the reduction of in[i] over all ranks, on every rank. Both buffers have `count` elements
 * and may be the same. */
tutti_code tutti_all_reduce(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, tutti_op op, const tutti_options* options,
                            tutti_work** work);

/* Runs tutti_all_reduce on a list of `size` tensors, as one operation with one work: outs[i] = the
 * reduction of ins[i] over all ranks, of counts[i] elements each. Thousands of small tensors cost
 * little more than one large one. All ranks must list the same counts in the same order:
 * FAILED_PRECONDITION. `size` is at most 2^24 - 1. The arrays may be freed when the call returns;
 * the buffers must stay until the work was waited for.
 *
 * An output may be its own input, and overlaps no other tensor of the list: INVALID_ARGUMENT, with
 * both positions. Inputs may overlap each other. A tensor that is listed again with the same input,
 * output and count is reduced once: all ranks must then repeat it.
 *
 * Tensors are not copied if the group is on one host and all are memory from tutti_alloc().
 * Otherwise they are copied block by block if the call blocks, and as a whole if it does not and
 * the buffers need not stay. Between hosts a call with `work` blocks if the segment has no room for
 * that copy: all ranks must make their calls on all groups in one order.
 *
 * With ring between hosts, a tensor's bits may differ from those of tutti_all_reduce, unless the
 * operation is reproducible. */
tutti_code tutti_all_reduce_many(tutti_group* group, const void* const* ins, void* const* outs,
                                 const size_t* counts, size_t size, tutti_dtype dtype, tutti_op op,
                                 const tutti_options* options, tutti_work** work);

/* Like tutti_all_reduce, but only rank `root` gets the result; other ranks' `out` is ignored and
 * may be NULL. */
tutti_code tutti_reduce(tutti_group* group, const void* in, void* out, size_t count,
                        tutti_dtype dtype, tutti_op op, int32_t root, const tutti_options* options,
                        tutti_work** work);

/* Copies the `count` elements of rank `root`'s buffer to every other rank's. The root's buffer is
 * only read. */
tutti_code tutti_broadcast(tutti_group* group, void* buffer, size_t count, tutti_dtype dtype,
                           int32_t root, const tutti_options* options, tutti_work** work);

/* Concatenates the inputs of all ranks on every rank. `in` has `count` elements and `out` has
 * count * world_size, with the input of rank r at r * count. In place: in == out + rank * count. */
tutti_code tutti_all_gather(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, const tutti_options* options, tutti_work** work);

/* Reduces over all ranks and gives each rank its part. `in` has count * world_size elements; `out`
 * has `count`, those at rank * count of the reduction. In place: out == in + rank * count. */
tutti_code tutti_reduce_scatter(tutti_group* group, const void* in, void* out, size_t count,
                                tutti_dtype dtype, tutti_op op, const tutti_options* options,
                                tutti_work** work);

/* Concatenates the inputs of all ranks on rank `root`. `in` has `count` elements; `out` has
 * count * world_size, with the input of rank r at r * count, and is ignored on other ranks, where
 * it may be NULL. In place at the root: in == out + root * count. */
tutti_code tutti_gather(tutti_group* group, const void* in, void* out, size_t count,
                        tutti_dtype dtype, int32_t root, const tutti_options* options,
                        tutti_work** work);

/* Gives each rank its part of rank `root`'s input. `in` has count * world_size elements, those of
 * rank r at r * count, and is ignored on other ranks, where it may be NULL; `out` has `count`. In
 * place at the root: out == in + root * count. */
tutti_code tutti_scatter(tutti_group* group, const void* in, void* out, size_t count,
                         tutti_dtype dtype, int32_t root, const tutti_options* options,
                         tutti_work** work);

/* Sends a part of each rank's input to each rank: both buffers have count * world_size elements;
 * `in` has those for rank r at r * count, and `out` gets those from rank r at r * count. Buffers
 * from tutti_alloc() must not overlap. The strategy makes no difference between hosts. */
tutti_code tutti_all_to_all(tutti_group* group, const void* in, void* out, size_t count,
                            tutti_dtype dtype, const tutti_options* options, tutti_work** work);

/* Like tutti_all_gather, with a count for each rank: `in` has counts[rank] elements, and `out` has
 * those of all ranks, one after the other. `counts` has world_size elements, the same on all ranks,
 * and may be freed when the call returns. In place: `in` is this rank's part of `out`.
 * INVALID_ARGUMENT, here and below: the group has more than 4095 ranks. */
tutti_code tutti_all_gather_v(tutti_group* group, const void* in, void* out, const size_t* counts,
                              tutti_dtype dtype, const tutti_options* options, tutti_work** work);

/* Like tutti_reduce_scatter, with a count for each rank: `in` has the parts of all ranks, one after
 * the other, and `out` has counts[rank] elements. In place: `out` is this rank's part of `in`. */
tutti_code tutti_reduce_scatter_v(tutti_group* group, const void* in, void* out,
                                  const size_t* counts, tutti_dtype dtype, tutti_op op,
                                  const tutti_options* options, tutti_work** work);

/* Like tutti_all_to_all, with a count for each pair of ranks: `in` has the parts for all ranks, one
 * after the other, of in_counts[r] elements for rank r, and `out` gets those from all ranks, of
 * out_counts[r] elements from rank r. FAILED_PRECONDITION on every rank: a rank sends more or fewer
 * elements than the other one expects. The ranks exchange their counts first: the call blocks until
 * all ranks have called, also with `work`. */
tutti_code tutti_all_to_all_v(tutti_group* group, const void* in, const size_t* in_counts,
                              void* out, const size_t* out_counts, tutti_dtype dtype,
                              const tutti_options* options, tutti_work** work);

/* Ends once every rank has called it. */
tutti_code tutti_barrier(tutti_group* group, const tutti_options* options, tutti_work** work);

/* ---- Messages between two ranks ---- */

/* tutti_recv(): a message of any rank. */
enum { TUTTI_ANY_RANK = -1 };

/* Sends `count` elements to rank `destination` of the group, which receives them by tutti_recv()
 * with the same tag, count and dtype. Messages of one rank to another with the same tag are
 * received in the order in which they were sent; they need no order among collectives. If `work` is
 * NULL, the call blocks until the receiving process has the message, in a tutti_recv() for this
 * rank or any (at most 4072 bytes also before the matching call); otherwise the message is copied,
 * and the call blocks only if the segment has no room. Messages that were not received are lost
 * when this rank leaves the group.
 *
 * The first message of a rank to another makes one of the job's 4096 groups. Only `timeout_ms`,
 * `on_stream` and `stream` of the options are used.
 *
 * Either side may use GPU memory; messages pass through pinned memory. On a stream the calls wait
 * neither for the stream nor for the other rank, but for the worker where a group is made, and for
 * room, at most for the timeout. The sender's stream goes on when it has copied the message; the
 * receiver's waits for the message and copies it. A message from the host's memory first waits for
 * earlier ones from GPU memory to that rank.
 *
 * INVALID_ARGUMENT: an argument is wrong, and the receiver's call fails, too; or `destination` is
 * no other rank of the group, and nobody learns it. DEADLINE_EXCEEDED: the receiver has not called,
 * or the stream has not reached the message; it is lost. RESOURCE_EXHAUSTED: no room for a copy or
 * another group. Otherwise see the collectives. */
tutti_code tutti_send(tutti_group* group, const void* in, size_t count, tutti_dtype dtype,
                      int32_t destination, uint64_t tag, const tutti_options* options,
                      tutti_work** work);

/* Receives the next message with this tag from rank `source`, or from any rank if that is
 * TUTTI_ANY_RANK: see tutti_work_source(). With `work`, the message is received also while nobody
 * waits for it.
 *
 * INVALID_ARGUMENT: an argument is wrong, and the message is lost; or its sender refused to send
 * it. DEADLINE_EXCEEDED: no such message came in time, or the stream has not copied it.
 * FAILED_PRECONDITION: the message has another count or dtype; it is lost. Otherwise see
 * tutti_send(). */
tutti_code tutti_recv(tutti_group* group, void* out, size_t count, tutti_dtype dtype,
                      int32_t source, uint64_t tag, const tutti_options* options,
                      tutti_work** work);

/* ---- For authors of bindings ---- */

/* For a collective that a binding refuses itself, before it calls C. The call keeps its place in
 * the order: it fails on the other ranks with `code`, `message` and the name of this rank. Does not
 * wait for them. Call it once for each collective of a call. `collective`: TUTTI_ALL_REDUCE for
 * tutti_all_reduce_many(), that of the function without counts for one with counts. `message` may
 * be NULL.
 *
 * Returns `code`, for which tutti_last_error() has the message; TUTTI_UNKNOWN if that is TUTTI_OK
 * or no code. FAILED_PRECONDITION, UNAVAILABLE, CANCELLED: the other ranks were not notified. */
tutti_code tutti_refuse(tutti_group* group, tutti_collective collective, tutti_code code,
                        const char* message);
/* The same for tutti_send(): the receiver's call for this message fails. `tag`: NULL if the tag is
 * wrong: the receiver's next call for a message of this rank fails. A wrong `destination` is
 * INVALID_ARGUMENT, and nobody is notified. */
tutti_code tutti_refuse_send(tutti_group* group, int32_t destination, const uint64_t* tag,
                             tutti_code code, const char* message);
/* The same for tutti_recv(): the message is received and lost; its sender does not know. `tag`:
 * NULL if the tag is wrong: the next message of `source`. A wrong `source` is INVALID_ARGUMENT, and
 * no message is lost. */
tutti_code tutti_refuse_recv(tutti_group* group, int32_t source, const uint64_t* tag,
                             tutti_code code, const char* message);

/* ---- Work ---- */

/* Waits for the operation, copies its result to ordinary output memory, and returns its outcome, as
 * do later calls. If `timeout_ms` is negative, waits until the operation ends. DEADLINE_EXCEEDED
 * while tutti_work_done() is 0: `timeout_ms` passed, and the operation goes on. */
tutti_code tutti_work_wait(tutti_work* work, int32_t timeout_ms);
/* 1 if the operation has ended, so that tutti_work_wait() would not block, else 0. 1 for NULL. */
int tutti_work_done(tutti_work* work);
/* Calls done(argument) once, on a thread of the library, when the operation has ended and its
 * result is in the output. Functions of one group are called one after the other, in the order of
 * these calls, even if the handle was freed. They may call the library, and should not block.
 * FAILED_PRECONDITION: this is a forked child. RESOURCE_EXHAUSTED: no thread can be started. */
tutti_code tutti_work_notify(tutti_work* work, void (*done)(void* argument), void* argument);
/* A descriptor that becomes, and stays, readable when tutti_work_notify() would call: for poll(),
 * epoll and event loops. The work owns it. -1 on failure: see tutti_work_notify(). */
int tutti_work_fd(tutti_work* work);
/* The rank whose message a tutti_recv() has received, once that was waited for; else -1. */
int32_t tutti_work_source(tutti_work* work);
/* Frees the handle. An operation that was not waited for goes on, and its result reaches only
 * output memory from tutti_alloc(). NULL is allowed. */
void tutti_work_free(tutti_work* work);

#pragma GCC visibility pop
#if defined(__cplusplus)
}
#endif
