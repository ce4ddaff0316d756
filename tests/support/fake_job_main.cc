// The fake job as a program, for tests in other languages: fake_job SOCKET WORLD_SIZE. Prints
// "ready", and serves until its standard input ends.
#include <cstdio>
#include <cstdlib>

#include "tests/support/fake_job.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const tutti::FakeJob job(argv[1], static_cast<uint32_t>(std::atoi(argv[2])));
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
  return 0;
}
