// The rules by which a slot of the board changes, and the order in which its memory is accessed.
// Pure, and the same for clients, the worker and the explorer (tests/board/explorer_test.cc), which
// runs every interleaving of the steps below.
//
// SlotWord and the functions on it define the changes (word.h). A *procedure* (Arrive, CallWorker,
// ClaimBlock, FinishBlock, CompleteOp, ResumeFolding, StopClaims, EndOp; of windows FillWindow,
// ReleaseWindow, PrepareSleep) makes them, as a state machine whose step() accesses shared memory
// once. `Memory` is the slot of one operation, behind load, store and compare-exchange (SlotMemory
// in area.h, or a model).
//
// WHY IT IS SAFE. The word alone decides: arrivals are counted in it, and every phase is left by
// compare-exchange, so an operation gets one verdict. A request does not change from its arrival
// until its rank settles, and the slot's next generation begins when all members have settled; so
// no request is taken for another operation's. A rank publishes that it holds a block before it
// claims it: so the worker sees a block whose rank died or stopped while folding. It fails an
// operation only when no live rank holds a block, as outputs must not change after a failure is
// published. Order is never inferred from the time at which something is seen: a request's number
// is in `arrived`. Fresh memory is zero, which is generation 0 and over; counts carry their
// generation, so that an older generation's count is not taken for this one's, and each is opened
// once, from an older generation.
//
// WHAT THE WORKER MUST DO, besides its procedures:
//   - It clears a bit of `called` before it reads what the bit announces, the area's bit before the
//     slot's.
//     It reads the word before the arrivals, and learns of deaths before it reads the arrivals.
//   - It writes a failure before EndOp. Where ranks fold it runs StopClaims first, then waits until
//     no live rank holds a block, then runs CompleteOp where all blocks are folded after all, else
//     fails the operation. A rank that it does not wait for past a deadline may go on writing: then
//     the epoch ends.
//   - A dead rank's `holding` stays as it is, and is cleared before an operation is resumed. It
//     counts as settled for good in every area, also in those made later. A rank is dead when its
//     process is, not when its socket is closed: until then it may fold.
//   - To decide all operations itself it clears ranks_decide, then calls the operations at which a
//     rank has arrived. Afterwards no rank begins to fold by itself.
// WHAT A RANK MUST DO: one of its threads at a time folds blocks of an operation. It reads a
// failure before it settles. While it waits it tries ClaimBlock, then CompleteOp, whenever ranks
// fold, and runs CallWorker from time to time, as the rank that called before may have stopped
// before it rang.
//
// WHAT MEMORY MUST GUARANTEE. The explorer's memory is sequentially consistent. The real one is
// equivalent where
//   - exchange_word, load_word, load_ranks_decide and the worker's store of ranks_decide are
//     seq_cst, and so are store_ready, store_passed and load_passed (passing.h), for the same
//     reason: "arrive, then read ranks_decide" against "clear ranks_decide, then read who arrived"
//     is store-then-load on both sides. x86 reorders it where the worker's store is plain, ARM also
//     where the rank's exchange is acquire-release;
//   - the other exchanges are acquire-release, their failures and all loads acquire, all stores
//     release. claimed and folded change by exchange alone, so that each change continues the
//     release sequence: a process that stops the claims has seen the `holding` of every claim
//     before it, and one that sees all blocks counted sees their contents;
//   - set_called() and ring() are acquire-release read-modify-writes, and do not test first
//     whether the bit is set: the worker may have cleared it a moment ago and read the arrivals
//     already. The worker clears bits, too. ring() may spare the wake-up only where it and the
//     worker, before the worker sleeps, settle that by seq_cst accesses, as with ranks_decide;
//   - requests are read and written as relaxed words, as a late reader may meet those of the next
//     generation. A request that is published by an arrival or a word is read whole. Failures are
//     plain memory: written before the word changes, read after, and unchanged until the next
//     generation;
//   - a dead process's stores are visible to a process that learned of its death from the kernel.
// Sleeping needs only that with_sleeper() is applied to the word that was read before: the exchange
// that ends the phase sees the flag and clears it. Sleeps have time-outs besides.
#pragma once

#include "daemon/board/arrival.h"  // IWYU pragma: export
#include "daemon/board/folding.h"  // IWYU pragma: export
#include "daemon/board/passing.h"  // IWYU pragma: export
#include "daemon/board/verdict.h"  // IWYU pragma: export
#include "daemon/board/word.h"     // IWYU pragma: export
