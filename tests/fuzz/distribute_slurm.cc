// Slurm's lists: what is read has as many entries as it says and no separators in its names.
#include "client/faces/distribute/slurm_grammar.h"
#include "tests/fuzz/input.h"

namespace tutti::distribute {
namespace {

void check_hosts(const Result<std::vector<std::string>>& hosts) {
  if (!hosts.ok()) {
    require(hosts.status().code() == Code::invalid_argument, "refused");
    return;
  }
  require(hosts->size() <= kTasksMax, "a list is bounded");
  for (const std::string& host : *hosts)
    require(!host.empty() && host.find_first_of(",[]") == std::string::npos, "a name is plain");
}

void check_tasks(const Result<std::vector<int>>& tasks) {
  if (!tasks.ok()) {
    require(tasks.status().code() == Code::invalid_argument, "refused");
    return;
  }
  require(tasks->size() <= kTasksMax, "a list is bounded");
  for (const int number : *tasks) require(number >= 0, "a number of tasks is not negative");
}

}  // namespace
}  // namespace tutti::distribute

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::distribute;
  const std::string text(tutti::fuzz::Input(data, size).rest());
  check_hosts(expand_hostlist(text));
  check_tasks(expand_tasks_per_node(text));
  return 0;
}
