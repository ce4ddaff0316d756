// Which strategy, and which of its replicas, the code on a thread belongs to: what
// tf.distribute.get_strategy() and get_replica_context() tell. Each library that holds this code
// has scopes of its own: libtutti_frameworks.so, and what links tutti::faces.
#pragma once

#include "daemon/base/status.h"

namespace tutti::distribute {

class ReplicaContext;
class Strategy;

// Neither: no scope was entered. `replica` without which: between the replicas, as within a scope.
struct Context {
  Strategy* strategy = nullptr;
  ReplicaContext* replica = nullptr;
};

// The innermost one of this thread.
Context current_context();

// Makes a context current on this thread until leave_context(). FAILED_PRECONDITION: another
// strategy is current; within a replica, a scope.
Status enter_context(const Context& context);
// FAILED_PRECONDITION: `strategy` is not the innermost one.
Status leave_context(const Strategy* strategy);

// enter_context() for what cannot fail: the threads and merges of a strategy itself.
class ContextScope {
 public:
  explicit ContextScope(const Context& context);
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope();
};

}  // namespace tutti::distribute
