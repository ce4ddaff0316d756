#include "client/rank/host_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace tutti::client {
namespace {

// Assumed size of the last-level cache if the system does not tell.
constexpr long kCacheBytes = 32 << 20;

Status map(const Fd& memory, const std::string& what, uint64_t bytes, std::byte*& mapped) {
  struct stat info {};
  if (fstat(memory.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) < bytes)
    return internal_error("the worker's " + what + " has no size");
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (base == MAP_FAILED) return resource_exhausted("cannot map the " + what);
  mapped = static_cast<std::byte*>(base);
  return {};
}

Status map_board(const Fd& board, uint32_t local_ranks, board::View& view) {
  std::byte* base = nullptr;
  if (Status s = map(board, "board", board_bytes(local_ranks), base); !s.ok()) return s;
  view = {base, local_ranks};
  return {};
}

template <size_t N>
std::string text_of(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

}  // namespace

Status read_failure(const BoardFailure& failure) noexcept {
  const Code code = code_of(failure.code);
  const int32_t rank = failure.culprit_rank;
  const auto read = [&]() -> Status {
    return {code, text_of(failure.message), {rank, text_of(failure.culprit_host)}};
  };
  return without_throwing(code, read, rank);
}

Status HostMemory::open(Fd board, Fd recorder, std::vector<Fd> segments, uint32_t local_rank,
                        const MappedSegment& own, std::unique_ptr<HostMemory>& made) {
  made.reset(new HostMemory);
  const auto local_ranks = static_cast<uint32_t>(segments.size());
  if (Status s = map_board(board, local_ranks, made->view_); !s.ok()) return s;
  made->local_rank_ = local_rank;
  const BoardHeader& header = made->view_.header();
  if (header.magic != kBoardMagic || header.version != kProtocolVersion ||
      header.local_ranks != local_ranks || local_rank >= local_ranks)
    return failed_precondition("the worker's board is of another version or job");
  if (Status s = map(recorder, "recorder", recorder_bytes(local_ranks), made->recorder_base_);
      !s.ok())
    return s;
  made->recorder_ = {made->recorder_base_, local_ranks};
  const long cache_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  made->cache_bytes_ = static_cast<uint64_t>(cache_bytes > 0 ? cache_bytes : kCacheBytes);
  for (uint32_t other = 0; other < local_ranks; ++other) {
    made->others_.push_back(std::make_unique<MappedSegment>());
    if (other != local_rank) {
      Status mapped = made->others_.back()->map(std::move(segments[other]));
      if (!mapped.ok()) return mapped;
    }
    const MappedSegment& segment = other == local_rank ? own : *made->others_.back();
    made->mapped_.push_back({segment.base(), segment.bytes()});
  }
  return {};
}

HostMemory::~HostMemory() {
  if (recorder_base_ != nullptr) munmap(recorder_base_, recorder_bytes(view_.local_ranks()));
  if (view_.base() != nullptr) munmap(view_.base(), board_bytes(view_.local_ranks()));
}

}  // namespace tutti::client
