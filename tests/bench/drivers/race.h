// What all drivers of the race share, so that every contestant is verified, warmed, timed and
// written down in one and the same way.
//
// A sample is the time of one operation on one rank. The race takes, of every operation, the
// slowest rank, and of these the median. Buffers are allocated and touched once and reused; every
// result is checked by value, all elements on every rank, before and after the timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::race {

// stream is none: rank 0's tensor goes to rank 1, to see what the wire gives.
enum class Collective { all_reduce, reduce, broadcast, stream, all_gather, reduce_scatter };
constexpr int kRoot = 0;

struct Options {
  std::vector<Collective> collectives = {Collective::all_reduce};
  std::vector<size_t> sizes = {4, 65536};  // Bytes of the larger side: of all ranks' together.
  double seconds = 0.1;                    // To measure one size for.
  std::string out = ".";                   // Where rank R writes rank-R.jsonl.

  size_t bytes_max() const;
};

// "--key value" pairs of the command line: what is not of `Options` is the driver's own.
class Arguments {
 public:
  Arguments(int argc, char** argv);
  std::string get(const std::string& key, const std::string& otherwise = "") const;
  bool has(const std::string& key) const;
  Options options() const;

 private:
  std::vector<std::string> words_;
};

[[noreturn]] void fail(const std::string& why);

// One rank of one contestant. Sums of f32.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // Memory as this contestant likes it best, for as long as it lives. The same calls on all ranks.
  virtual float* allocate(size_t bytes);
  virtual bool offers(Collective collective) const { return collective != Collective::stream; }
  // `count` elements a rank. In place (in == out), but for all_gather and reduce_scatter, which
  // have count * world_size elements on their larger side.
  virtual void run(Collective collective, float* in, float* out, size_t count) = 0;
  // CPU time so far of processes beside the ranks that work for them; on rank 0, of all together.
  virtual double helpers_cpu_s() const { return 0; }
};

// The whole race of one rank: every collective it offers, at every size. 0, or 1: a wrong value.
int run_race(Contestant& contestant, const Options& options);

std::vector<std::string> split(const std::string& text, char separator);

}  // namespace tutti::race
