// In place of libFuzzer: runs files, and all files of folders, through the parser once.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

void replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  // Said first: it is what a crash leaves.
  std::printf("%s (%zu bytes)\n", path.c_str(), bytes.size());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

size_t replay_all(const fs::path& path) {
  if (!fs::is_directory(path)) return replay(path), 1;
  size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    replay(entry.path());
    ++files;
  }
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  size_t files = 0;
  for (int i = 1; i < argc; ++i) files += replay_all(argv[i]);
  if (files > 0) return 0;
  std::fprintf(stderr, "no inputs: name a corpus or its files\n");
  return 1;
}
