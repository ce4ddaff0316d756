// Where the ranks of a communicator of the fake NCCL meet: a file that they all map, in one process
// or in several.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tutti::fake {

inline constexpr int kRanksMax = 16;
inline constexpr size_t kPartBytes = size_t{256} << 10;  // Of a tensor, which meets at once.

class Meeting {
 public:
  // The path of a new one; "": there is none.
  static std::string make();
  // Null: it cannot be mapped.
  static std::unique_ptr<Meeting> open(const std::string& path, int ranks, int rank);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  std::byte* part(int rank) const;  // kPartBytes of each.
  // Waits until all ranks have come here as often as this one. False: this rank was aborted.
  bool meet();
  // Lets meet() return. Any thread.
  void abort() { is_aborted_ = true; }
  bool is_aborted() const { return is_aborted_; }

 private:
  struct Shared {
    std::atomic<uint64_t> arrived[kRanksMax];
  };
  Meeting(std::string path, int ranks, int rank, std::byte* memory)
      : path_(std::move(path)), ranks_(ranks), rank_(rank), memory_(memory) {}
  Shared& shared() const { return *reinterpret_cast<Shared*>(memory_); }
  bool is_complete(uint64_t times) const;

  const std::string path_;
  const int ranks_;
  const int rank_;
  std::byte* const memory_;
  std::atomic<bool> is_aborted_ = false;
};

// Waits for a moment.
void look_away();

}  // namespace tutti::fake
