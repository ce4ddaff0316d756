#include "tests/bench/drivers/race.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <sstream>

namespace tutti::race {
namespace {

constexpr size_t kAlignment = 2 << 20;
constexpr double kIterationsLeast = 3;
constexpr double kIterationsMax = 5000;
constexpr int kTrialOperations = 2;

using Clock = std::chrono::steady_clock;

constexpr const char* kNames[] = {"all_reduce", "reduce",     "broadcast",
                                  "stream",     "all_gather", "reduce_scatter"};

const char* name_of(Collective collective) { return kNames[static_cast<int>(collective)]; }

Collective collective_of(const std::string& name) {
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) fail("there is no collective '" + name + "'");
  return static_cast<Collective>(found - std::begin(kNames));
}

bool in_place(Collective collective) { return collective <= Collective::stream; }

// Small whole numbers: any sum of them is exact in f32, in whatever order.
float value_of(int rank, size_t index) {
  return static_cast<float>((index * 7 + static_cast<size_t>(rank) * 13) & 63);
}

void fill(float* data, int rank, size_t count) {
  for (size_t i = 0; i < count; ++i) data[i] = value_of(rank, i);
}

double cpu_s() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);  // Of all threads, and to the nanosecond.
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

double since_s(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One collective at one size.
class Bout {
 public:
  Bout(Contestant& peer, Collective collective, size_t bytes, float* in, float* out)
      : peer_(peer), collective_(collective), in_(in), out_(in_place(collective) ? in : out) {
    const size_t ranks = in_place(collective) ? 1 : static_cast<size_t>(peer.world_size());
    count_ = std::max<size_t>(bytes / sizeof(float) / ranks, 1);
    larger_ = count_ * ranks;
  }

  uint64_t verify();
  void measure(double seconds, float* scratch);
  std::string json(size_t bytes, uint64_t wrong) const;

 private:
  void operate() { peer_.run(collective_, in_, out_, count_); }
  float summed(size_t index) const;
  float expected(size_t index) const;
  size_t outputs() const;
  double choose_iterations(double seconds, float* scratch);

  Contestant& peer_;
  Collective collective_;
  float* in_;
  float* out_;
  size_t count_;
  size_t larger_;
  double cpu_s_ = 0;
  double helpers_cpu_s_ = 0;
  std::vector<int64_t> samples_ns_;
};

float Bout::summed(size_t index) const {
  float sum = 0;
  for (int rank = 0; rank < peer_.world_size(); ++rank) sum += value_of(rank, index);
  return sum;
}

float Bout::expected(size_t index) const {
  const auto me = static_cast<size_t>(peer_.rank());
  if (collective_ == Collective::broadcast || collective_ == Collective::stream)
    return value_of(kRoot, index);
  if (collective_ == Collective::all_gather)
    return value_of(static_cast<int>(index / count_), index % count_);
  return summed(collective_ == Collective::reduce_scatter ? me * count_ + index : index);
}

size_t Bout::outputs() const {
  if (collective_ == Collective::reduce && peer_.rank() != kRoot) return 0;
  if (collective_ == Collective::stream && peer_.rank() != 1) return 0;
  return collective_ == Collective::all_gather ? larger_ : count_;
}

uint64_t Bout::verify() {
  if (in_ != out_) std::fill_n(out_, larger_, -1.0F);
  fill(in_, peer_.rank(), collective_ == Collective::reduce_scatter ? larger_ : count_);
  operate();
  uint64_t wrong = 0;
  for (size_t i = 0; i < outputs(); ++i) wrong += out_[i] != expected(i);
  return wrong;
}

// The same on all ranks: rank 0's `value`.
float agree(Contestant& peer, float* scratch, double value) {
  scratch[0] = peer.rank() == 0 ? static_cast<float>(value) : 0;
  peer.run(Collective::all_reduce, scratch, scratch, 1);
  return scratch[0];
}

double Bout::choose_iterations(double seconds, float* scratch) {
  operate();
  agree(peer_, scratch, 0);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kTrialOperations; ++i) operate();
  const double each = since_s(start) / kTrialOperations;
  const double fitting = std::clamp(seconds / each, kIterationsLeast, kIterationsMax);
  return agree(peer_, scratch, std::floor(fitting));
}

void Bout::measure(double seconds, float* scratch) {
  // Zeros stay zeros, however often they are summed in place.
  std::fill_n(in_, larger_, 0.0F);
  const auto iterations = static_cast<size_t>(choose_iterations(seconds, scratch));
  samples_ns_.resize(iterations);
  for (size_t i = 0; i < iterations / 10; ++i) operate();
  agree(peer_, scratch, 0);
  const double cpu = cpu_s();
  const double helpers = peer_.helpers_cpu_s();
  for (int64_t& sample : samples_ns_) {
    const Clock::time_point start = Clock::now();
    operate();
    sample = std::chrono::nanoseconds(Clock::now() - start).count();
  }
  cpu_s_ = cpu_s() - cpu;
  agree(peer_, scratch, 0);  // All are done: what the helpers did for others is counted, too.
  helpers_cpu_s_ = peer_.helpers_cpu_s() - helpers;
}

std::string Bout::json(size_t bytes, uint64_t wrong) const {
  std::ostringstream text;
  text << R"({"collective": ")" << name_of(collective_) << R"(", "bytes": )" << bytes
       << R"(, "wrong": )" << wrong << R"(, "cpu_s": )" << cpu_s_ << R"(, "helpers_cpu_s": )"
       << helpers_cpu_s_ << R"(, "ns": [)";
  for (size_t i = 0; i < samples_ns_.size(); ++i) text << (i == 0 ? "" : ",") << samples_ns_[i];
  text << "]}\n";
  return text.str();
}

}  // namespace

size_t Options::bytes_max() const { return *std::ranges::max_element(sizes); }

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

Arguments::Arguments(int argc, char** argv) : words_(argv + 1, argv + argc) {}

bool Arguments::has(const std::string& key) const {
  return std::ranges::find(words_, "--" + key) != words_.end();
}

std::string Arguments::get(const std::string& key, const std::string& otherwise) const {
  const auto found = std::ranges::find(words_, "--" + key);
  return found == words_.end() || found + 1 == words_.end() ? otherwise : *(found + 1);
}

Options Arguments::options() const {
  Options options;
  options.seconds = std::stod(get("seconds", "0.1"));
  options.out = get("out", options.out);
  if (has("collectives")) options.collectives.clear();
  for (const std::string& name : split(get("collectives"), ','))
    options.collectives.push_back(collective_of(name));
  if (has("sizes")) options.sizes.clear();
  for (const std::string& size : split(get("sizes"), ','))
    options.sizes.push_back(std::stoull(size));
  return options;
}

void fail(const std::string& why) {
  std::fprintf(stderr, "race: %s\n", why.c_str());
  std::exit(1);
}

float* Contestant::allocate(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* memory = static_cast<float*>(std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr) fail("no memory for " + std::to_string(bytes) + " bytes");
  return memory;
}

int run_race(Contestant& contestant, const Options& options) {
  const size_t bytes =
      std::max(options.bytes_max(), sizeof(float) * static_cast<size_t>(contestant.world_size()));
  float* in = contestant.allocate(bytes);
  float* out = contestant.allocate(bytes);
  float* scratch = contestant.allocate(sizeof(float));
  std::memset(in, 0, bytes);
  std::memset(out, 0, bytes);
  const std::string path = options.out + "/rank-" + std::to_string(contestant.rank()) + ".jsonl";
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "w"), &std::fclose);
  if (file == nullptr) fail("cannot write " + path);
  uint64_t all_wrong = 0;
  for (const Collective collective : options.collectives)
    for (const size_t size : options.sizes) {
      if (!contestant.offers(collective)) continue;
      Bout bout(contestant, collective, size, in, out);
      uint64_t wrong = bout.verify();
      bout.measure(options.seconds, scratch);
      wrong += bout.verify();
      std::fputs(bout.json(size, wrong).c_str(), file.get());
      std::fflush(file.get());
      all_wrong += wrong;
    }
  if (all_wrong > 0) std::fprintf(stderr, "race: %lu values are wrong\n", all_wrong);
  return all_wrong > 0 ? 1 : 0;
}

}  // namespace tutti::race
