// What root may do beyond other users (capabilities(7)), and how a worker gives it up. Of Linux's
// own calls, because they must be safe between fork() and exec.
#pragma once

namespace tutti {

enum class Keep {
  nothing,         // For a process that becomes an ordinary user.
  what_root_uses,  // Root's way to files in others' folders, locked memory for RDMA, and what
                   // root's processes share with each other by /proc, as drivers of GPUs do.
};

// Takes capabilities from those that this process, and whatever it executes, may ever gain. Best
// effort: without CAP_SETPCAP nothing is taken, and only no_new_privs keeps an ordinary user's
// process from gaining any. Async-signal-safe.
void bound_capabilities(Keep keep);

// Gives up those that this process has; what root uses, it gains again by exec, as far as it is
// not bounded. Call it once the user has changed. False: errno says why. Async-signal-safe.
bool drop_capabilities(Keep keep);

}  // namespace tutti
