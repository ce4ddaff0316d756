#include "daemon/engine/engine.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <list>
#include <map>

#include "daemon/engine/slice_run.h"

namespace tutti {
namespace {

// An operation under way: a window of slices over its geometry. Shared with the release of every
// frame it sent, so that borrowed memory outlives the operation's end where a link is slow to let
// go.
struct Run {
  explicit Run(Operation given) : operation(std::move(given)), geometry(operation) {}

  const Operation operation;
  const Geometry geometry;
  std::deque<std::unique_ptr<SliceRun>> window;
  uint64_t next_slice = 0;
  Mailbox mailbox;
  bool ended = false;
};

class PlainEngine final : public Engine {
 public:
  PlainEngine(Device& device, Wire& wire, const EngineLimits& limits, Post post)
      : limits_(limits),
        post_(std::move(post)),
        scratch_(device),
        stream_(stream_of(device)),
        parts_{device, *stream_, wire, scratch_} {}
  ~PlainEngine() override { *alive_ = false; }

  void start(Operation operation) override;
  Status on_frame(Frame frame) override;
  std::shared_ptr<Landing> place(const FrameHeader& header) override;
  void abort(uint32_t epoch, const Status& cause) override;
  Waiting waiting(const OpKey& key) const override;

 private:
  using Runs = std::list<std::shared_ptr<Run>>;
  struct Stashed {
    size_t bytes = 0;
    Mailbox frames;
  };

  static std::unique_ptr<Stream> stream_of(Device& device);
  void pump_soon();
  void pump();
  bool advance(const std::shared_ptr<Run>& run);
  Result<bool> advance_slices(const std::shared_ptr<Run>& run);
  void fill_window(Run& run);
  std::function<void()> release_for(const std::shared_ptr<Run>& run, SliceRun& slice);
  void retire_slices(Run& run);
  void end(const std::shared_ptr<Run>& run, Status status);
  Status stash(const OpKey& key, const FrameTag& tag, Frame frame);
  std::shared_ptr<Run> find(const OpKey& key) const;

  const EngineLimits limits_;
  const Post post_;
  Scratch scratch_;
  std::unique_ptr<Stream> stream_;
  EngineParts parts_;
  Runs runs_;  // In the order of start().
  std::map<OpKey, Runs::iterator> by_key_;
  std::map<OpKey, Stashed> stash_;
  size_t stash_bytes_ = 0;
  bool pump_posted_ = false;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Loop thread only.
};

std::unique_ptr<Stream> PlainEngine::stream_of(Device& device) {
  Result<std::unique_ptr<Stream>> stream = device.make_stream();
  require(stream.ok(), "a device that was opened gives streams");
  return std::move(*stream);
}

void PlainEngine::start(Operation operation) {
  auto run = std::make_shared<Run>(std::move(operation));
  const auto early = stash_.find(run->operation.key);
  if (early != stash_.end()) {
    run->mailbox = std::move(early->second.frames);
    stash_bytes_ -= early->second.bytes;
    stash_.erase(early);
  }
  const auto at = runs_.insert(runs_.end(), run);
  require(by_key_.emplace(run->operation.key, at).second, "an operation's key is its own");
  pump();
}

Status PlainEngine::on_frame(Frame frame) {
  const FrameHeader header = frame.header;
  const OpKey key{header.epoch, header.group, header.op_seq};
  const FrameTag tag{header.slice, header.from, header.to, header.ordinal};
  const std::shared_ptr<Run> run = find(key);
  if (run == nullptr) return stash(key, tag, std::move(frame));
  if (!run->mailbox.emplace(tag, std::move(frame)).second)
    return data_loss("a frame came twice", {header.from, ""});
  pump();
  return {};
}

std::shared_ptr<Landing> PlainEngine::place(const FrameHeader& header) {
  const std::shared_ptr<Run> run = find({header.epoch, header.group, header.op_seq});
  if (run == nullptr) return nullptr;
  for (const std::unique_ptr<SliceRun>& slice : run->window)
    if (slice->slice() == header.slice) return slice->land(header);
  return nullptr;
}

Status PlainEngine::stash(const OpKey& key, const FrameTag& tag, Frame frame) {
  const size_t bytes = frame.payload.bytes() + sizeof(FrameHeader);
  if (stash_bytes_ + bytes > limits_.stash_bytes_max)
    return resource_exhausted("too many frames for operations that have not started");
  Stashed& stashed = stash_[key];
  if (!stashed.frames.emplace(tag, std::move(frame)).second)
    return data_loss("a frame came twice", {std::get<1>(tag), ""});
  stashed.bytes += bytes;
  stash_bytes_ += bytes;
  return {};
}

std::shared_ptr<Run> PlainEngine::find(const OpKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : *found->second;
}

void PlainEngine::pump_soon() {
  if (pump_posted_) return;
  pump_posted_ = true;
  post_([this, alive = alive_] {
    if (!*alive) return;
    pump_posted_ = false;
    pump();
  });
}

// One pass over the operations under way. Work that could go on at once is posted, so that the loop
// stays awake to doorbells and deaths between slices.
void PlainEngine::pump() {
  std::vector<std::shared_ptr<Run>> under_way;  // A copy: done() may start or abort others.
  under_way.reserve(static_cast<size_t>(limits_.ops_in_flight));
  const auto most = std::min(runs_.size(), static_cast<size_t>(limits_.ops_in_flight));
  std::copy_n(runs_.begin(), most, std::back_inserter(under_way));
  for (const std::shared_ptr<Run>& run : under_way)
    if (!run->ended && advance(run)) pump_soon();
}

// Whether more could be done at once.
bool PlainEngine::advance(const std::shared_ptr<Run>& run) {
  fill_window(*run);
  Result<bool> moved = advance_slices(run);
  if (!moved.ok()) {
    end(run, moved.status());
    return true;
  }
  retire_slices(*run);
  if (!run->window.empty()) return *moved;
  if (run->next_slice < run->geometry.slices()) return true;
  end(run, {});
  return true;
}

void PlainEngine::fill_window(Run& run) {
  const auto room = static_cast<size_t>(limits_.slices_in_flight);
  while (run.window.size() < room && run.next_slice < run.geometry.slices())
    run.window.push_back(std::make_unique<SliceRun>(run.operation, run.geometry, run.next_slice++));
}

Result<bool> PlainEngine::advance_slices(const std::shared_ptr<Run>& run) {
  bool moved = false;
  const SliceRun::Releases releases = [this, &run](SliceRun& slice) {
    return release_for(run, slice);
  };
  for (const std::unique_ptr<SliceRun>& slice : run->window) {
    if (slice->all_moved()) continue;
    Result<Progress> progress = slice->advance(parts_, run->mailbox, releases);
    if (!progress.ok()) return progress.status();
    moved |= *progress == Progress::done;
  }
  return moved;
}

// Called by links on any thread, once per frame; the counting happens on the loop.
std::function<void()> PlainEngine::release_for(const std::shared_ptr<Run>& run, SliceRun& slice) {
  return [this, post = post_, alive = alive_, run, at = &slice] {
    post([this, alive, run, at] {
      --at->unreleased;
      if (!*alive) return;
      if (run->ended && at->unreleased == 0) at->recycle(scratch_);
      if (!run->ended) pump();
    });
  };
}

void PlainEngine::retire_slices(Run& run) {
  while (!run.window.empty() && run.window.front()->all_moved() &&
         run.window.front()->unreleased == 0) {
    run.window.front()->recycle(scratch_);
    run.window.pop_front();
  }
}

void PlainEngine::end(const std::shared_ptr<Run>& run, Status status) {
  run->ended = true;
  run->mailbox.clear();
  for (const std::unique_ptr<SliceRun>& slice : run->window) {
    slice->take_back_landing();
    if (slice->unreleased == 0) slice->recycle(scratch_);  // Else with its last release.
  }
  const auto entry = by_key_.find(run->operation.key);
  runs_.erase(entry->second);
  by_key_.erase(entry);
  run->operation.done(std::move(status));
  if (!runs_.empty()) pump_soon();
}

void PlainEngine::abort(uint32_t epoch, const Status& cause) {
  std::erase_if(stash_, [&](const auto& entry) {
    if (entry.first.epoch != epoch) return false;
    stash_bytes_ -= entry.second.bytes;
    return true;
  });
  const Runs snapshot = runs_;
  for (const std::shared_ptr<Run>& run : snapshot)
    if (run->operation.key.epoch == epoch && !run->ended) end(run, cause);
}

Engine::Waiting PlainEngine::waiting(const OpKey& key) const {
  const std::shared_ptr<Run> run = find(key);
  if (run == nullptr) return {"its turn", -1};
  for (const std::unique_ptr<SliceRun>& slice : run->window) {
    const Move* move = slice->at();
    if (move == nullptr) continue;
    const bool sending = move->kind == MoveKind::send;
    return {"slice " + std::to_string(slice->slice()) + ": chunk " + std::to_string(move->chunk) +
                (sending ? " to" : " from") + " rank " + std::to_string(move->peer),
            move->peer};
  }
  return {"its last frames to be sent", -1};
}

}  // namespace

std::unique_ptr<Engine> make_engine(Device& device, Wire& wire, const EngineLimits& limits,
                                    Engine::Post post) {
  return std::make_unique<PlainEngine>(device, wire, limits, std::move(post));
}

}  // namespace tutti
