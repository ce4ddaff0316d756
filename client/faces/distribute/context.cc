#include "client/faces/distribute/context.h"

#include <vector>

namespace tutti::distribute {
namespace {

std::vector<Context>& contexts() {
  thread_local std::vector<Context> contexts;
  return contexts;
}

}  // namespace

Context current_context() { return contexts().empty() ? Context{} : contexts().back(); }

Status enter_context(const Context& context) {
  const Context current = current_context();
  if (current.strategy != nullptr && current.strategy != context.strategy)
    return failed_precondition(
        "another strategy's scope is active on this thread; mixing different strategies is not "
        "possible, leave that scope first");
  if (current.replica != nullptr)
    return failed_precondition(
        "scope() was entered within a replica's function; enter it outside of run()");
  contexts().push_back(context);
  return {};
}

Status leave_context(const Strategy* strategy) {
  if (current_context().strategy != strategy || current_context().replica != nullptr)
    return failed_precondition(
        "the scope to leave is not the innermost one of this thread; leave scopes in the reverse "
        "order of entering");
  contexts().pop_back();
  return {};
}

ContextScope::ContextScope(const Context& context) { contexts().push_back(context); }

ContextScope::~ContextScope() { contexts().pop_back(); }

}  // namespace tutti::distribute
