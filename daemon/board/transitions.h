// How a slot of the board changes, and in which order its memory is touched: pure, and the same for
// clients, the worker and the explorer (tests/board/explorer_test.cc), which runs every
// interleaving of the steps below.
//
// SlotWord and the functions on it say which changes there are (word.h). A *procedure* (CallWorker,
// Arrive, ClaimBlock, FinishBlock, CompleteOp, ResumeFolding, StopClaims, EndOp) makes them: each
// step() touches shared memory once. `Memory` is the slot of one operation, behind load, store and
// compare-exchange (SlotMemory in area.h, or a model).
//
// WHY IT IS SAFE. The word decides everything: who arrived is counted in it, and each phase is left
// by compare-exchange, so an operation gets one verdict. Requests are stable from their stamp until
// their rank settles, and a slot's next turn begins when all members have settled; so nobody reads
// one operation's request for another's. A rank says that it holds a block before it claims it: a
// block that is being folded by a rank that died or stopped is seen by the worker, which fails the
// operation only when nobody alive holds a block, for outputs must not change after a failure is
// told. Order is never inferred from when something is seen: a request's number is in its stamp.
// Fresh memory is zero, which is turn 0 and over; counts bear their turn, so that an older turn's
// are never taken for this one's, and each is opened once, from an older turn.
//
// WHAT THE WORKER OWES, besides its procedures:
//   - It takes a mark before it looks, the area's before the slot's, and the word before the
//     stamps. Who is gone is known before the stamps are read.
//   - A failure is written before EndOp. Where ranks fold: Stop first, then no holder that lives,
//     then Completion where all is folded after all, else the failure. A holder that it gives up at
//     a deadline may go on writing: the epoch is over with it.
//   - Of a death: what a dead rank holds stays held, and means nothing in an operation that is
//     resumed later; its seat is settled once for all, in every area, also in those made later. A
//     rank is dead when its process is, not when its socket is closed: it might fold on.
//   - To have all operations to itself it clears ranks_decide, then calls what somebody arrived at.
//     Afterwards no rank begins to fold by itself.
// WHAT A RANK OWES: one thread at a time folds blocks of one operation; it reads a failure before
// it settles; while it waits it tries ClaimBlock, then CompleteOp, whenever ranks fold, and runs
// CallWorker now and then, because whoever called may have stopped before it rang.
//
// WHAT MEMORY OWES. The explorer's memory is sequentially consistent; the real one is as good where
//   - exchange_word, load_word, load_ranks_decide, and the worker's store of ranks_decide are
//     seq_cst, and so are store_ready, store_passed and load_passed (passing.h), for the same
//     reason. "Arrive, then look whether ranks decide" against "clear ranks_decide, then look who
//     arrived" is store-then-load on both sides: x86 reorders it where the worker's store is plain,
//     ARM also where the rank's exchange is acquire-release;
//   - the other exchanges are acquire-release, their failures and all loads acquire, all stores
//     release. claimed and folded change by exchange alone, so that each change continues the
//     release sequence: whoever stops the claims has seen the holding of every claim before it, and
//     whoever sees all blocks counted sees what is in them;
//   - mark() and ring() are read-modify-writes, acquire-release, without a look first whether the
//     bit is set: the worker may have taken it a moment ago and read the stamps already. So is the
//     worker's taking of them. ring() may only spare the wake-up where it and the worker, before it
//     sleeps, settle that seq_cst, as with ranks_decide;
//   - requests are read and written as relaxed words, for a late reader may meet the next turn's:
//     who reads one that is published by a stamp or a word sees it whole. Failures are plain
//     memory: written before the word says so, read after, and not changed until the next turn;
//   - a dead process's stores are seen by whoever learned of its death from the kernel.
// Sleeping needs no rule but with_sleeper() before, on what was read: whoever ends the phase sees
// the flag in the very exchange that clears it, and sleeps have time-outs besides.
#pragma once

#include "daemon/board/arrival.h"  // IWYU pragma: export
#include "daemon/board/folding.h"  // IWYU pragma: export
#include "daemon/board/passing.h"  // IWYU pragma: export
#include "daemon/board/verdict.h"  // IWYU pragma: export
#include "daemon/board/word.h"     // IWYU pragma: export
