// How many instructions a small operation takes in the client: of a rank that is alone in its job,
// so that nothing waits. Under callgrind, as tests/bench/instructions runs it.
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/tutti.h"

namespace {

bool check(tutti_code code) {
  if (code != TUTTI_OK) std::fprintf(stderr, "%s\n", tutti_last_error()->message);
  return code == TUTTI_OK;
}

bool call(tutti_group* group, float* x, bool blocks) {
  tutti_work* work = nullptr;
  const bool called = check(
      tutti_all_reduce(group, x, x, 1, TUTTI_F32, TUTTI_SUM, nullptr, blocks ? nullptr : &work));
  if (blocks || !called) return called;
  const bool ended = check(tutti_work_wait(work, -1));
  tutti_work_free(work);
  return ended;
}

}  // namespace

int main(int argc, char** argv) {
  const bool blocks = argc < 2 || std::strcmp(argv[1], "async") != 0;
  const int operations = argc > 2 ? std::atoi(argv[2]) : 1000;
  tutti_group* group = nullptr;
  if (!check(tutti_join(nullptr, &group))) return 1;
  auto* x = static_cast<float*>(tutti_alloc(group, sizeof(float)));
  bool right = x != nullptr;
  for (int i = 0; right && i < 100; ++i) right = call(group, x, blocks);
  CALLGRIND_START_INSTRUMENTATION;
  for (int i = 0; right && i < operations; ++i) right = call(group, x, blocks);
  CALLGRIND_STOP_INSTRUMENTATION;
  tutti_group_free(group);
  return right ? 0 : 1;
}
