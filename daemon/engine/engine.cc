#include "daemon/engine/engine.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "daemon/engine/past.h"
#include "daemon/engine/rank_tensors.h"
#include "daemon/engine/slice_run.h"

namespace tutti {
namespace {

// An operation under way: a window of slices over its geometry. Shared with the release of every
// frame it sent, so that borrowed memory outlives the operation's end where a link is slow to let
// go.
struct Run {
  explicit Run(Operation given)
      : operation(std::move(given)),
        geometry(operation.execution->plan, operation.dtype, operation.count,
                 operation.slice_bytes),
        tensor(operation.tensor) {}

  const Operation operation;
  const Geometry geometry;
  std::shared_ptr<HostTensor> tensor;
  std::deque<std::unique_ptr<SliceRun>> window;
  uint64_t next_slice = 0;
  size_t first_taken = 0;  // Steps of the first slice.
  Mailbox mailbox;
  bool ended = false;
  Status end;  // Told once the links have let go.

  bool is_lent() const {
    return std::ranges::any_of(window, [](const auto& slice) { return slice->unreleased != 0; });
  }
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
  void poke(const OpKey& key) override {
    if (find(key) != nullptr) pump();
  }
  Status on_frame(Frame frame) override;
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) override;
  void wake() override { pump_soon(); }
  void cancel(const OpKey& key, const Status& cause) override;
  void abort(uint32_t epoch, const Status& cause) override;
  Waiting waiting(const OpKey& key) const override;

 private:
  using Group = std::pair<uint32_t, uint32_t>;  // Epoch, group.
  struct Stashed {
    size_t bytes = 0;
    Mailbox frames;
  };

  static std::unique_ptr<Stream> stream_of(Device& device);
  void pump_soon();
  void pump();
  bool advance(const std::shared_ptr<Run>& run);
  Result<bool> advance_slices(const std::shared_ptr<Run>& run);
  Result<bool> add_slice(Run& run);
  std::function<void()> release_for(const std::shared_ptr<Run>& run, SliceRun& slice);
  Status retire_slices(Run& run);
  void release_front(Run& run);
  void end(const std::shared_ptr<Run>& run, Status status);
  void conclude(const std::shared_ptr<Run>& run);
  bool is_over(const OpKey& key) const;
  Status stash(const OpKey& key, const FrameTag& tag, Frame frame);
  Mailbox unstash(const OpKey& key);
  void take_early(const std::shared_ptr<Run>& run);
  std::shared_ptr<Run> find(const OpKey& key) const;

  const EngineLimits limits_;
  const Post post_;
  Scratch scratch_;
  std::unique_ptr<Stream> stream_;
  EngineParts parts_;
  std::map<OpKey, std::shared_ptr<Run>> runs_;
  std::map<Group, Past> past_;
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
  const OpKey key = operation.key;
  require(!is_over(key), "an operation that was cancelled does not start");
  const auto run = std::make_shared<Run>(std::move(operation));
  if (run->tensor == nullptr)
    run->tensor = std::make_shared<RankTensors>(parts_.device, parts_.stream, scratch_,
                                                run->operation, run->geometry);
  require(runs_.emplace(key, run).second, "an operation's key is its own");
  take_early(run);
  pump();
}

// Of those who disagree each is told of once.
void PlainEngine::take_early(const std::shared_ptr<Run>& run) {
  std::set<int> others;
  for (auto& [tag, frame] : unstash(run->operation.key))
    if (frame.header.agreement == run->operation.agreement)
      run->mailbox.emplace(tag, std::move(frame));
    else
      others.insert(frame.header.from);
  for (const int from : others)
    if (!run->ended && run->operation.mismatch) run->operation.mismatch(run->operation.key, from);
}

Status PlainEngine::on_frame(Frame frame) {
  const FrameHeader header = frame.header;
  const OpKey key{header.epoch, header.group, header.op_seq};
  const FrameTag tag{header.slice, header.from, header.to, header.ordinal};
  const std::shared_ptr<Run> run = find(key);
  if (run == nullptr) return is_over(key) ? Status() : stash(key, tag, std::move(frame));
  if (header.agreement != run->operation.agreement) {
    if (run->operation.mismatch) run->operation.mismatch(key, header.from);
    return {};
  }
  if (!run->mailbox.emplace(tag, std::move(frame)).second) return data_loss("a frame came twice");
  pump();
  return {};
}

std::shared_ptr<RecvBuffer> PlainEngine::recv_buffer_for(const FrameHeader& header) {
  const std::shared_ptr<Run> run = find({header.epoch, header.group, header.op_seq});
  if (run == nullptr || header.agreement != run->operation.agreement) return nullptr;
  for (const std::unique_ptr<SliceRun>& slice : run->window)
    if (slice->slice() == header.slice) return slice->land(header);
  return nullptr;
}

Status PlainEngine::stash(const OpKey& key, const FrameTag& tag, Frame frame) {
  const size_t bytes = frame.payload.bytes() + sizeof(FrameHeader);
  if (stash_bytes_ + bytes > limits_.stash_bytes_max)
    return resource_exhausted("too many frames for operations that have not started");
  Stashed& stashed = stash_[key];
  if (!stashed.frames.emplace(tag, std::move(frame)).second) return data_loss("a frame came twice");
  stashed.bytes += bytes;
  stash_bytes_ += bytes;
  return {};
}

Mailbox PlainEngine::unstash(const OpKey& key) {
  auto early = stash_.extract(key);
  if (early.empty()) return {};
  stash_bytes_ -= early.mapped().bytes;
  return std::move(early.mapped().frames);
}

std::shared_ptr<Run> PlainEngine::find(const OpKey& key) const {
  const auto found = runs_.find(key);
  return found == runs_.end() ? nullptr : found->second;
}

bool PlainEngine::is_over(const OpKey& key) const {
  const auto past = past_.find({key.epoch, key.group});
  return past != past_.end() && past->second.contains(key.seq);
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
  std::vector<std::shared_ptr<Run>> under_way;  // A copy: done() may start or end others.
  for (auto at = runs_.begin(); at != runs_.end();) {
    const OpKey first = at->first;
    const OpKey last{first.epoch, first.group, UINT64_MAX};
    for (int i = 0; i < limits_.ops_in_flight && at != runs_.end() && at->first <= last; ++i, ++at)
      under_way.push_back(at->second);
    at = runs_.upper_bound(last);
  }
  for (const std::shared_ptr<Run>& run : under_way)
    if (!run->ended && advance(run)) pump_soon();
}

// Whether more could be done at once.
bool PlainEngine::advance(const std::shared_ptr<Run>& run) {
  Result<bool> moved = advance_slices(run);
  const bool any = !run->window.empty();
  const Status status = moved.ok() ? retire_slices(*run) : moved.status();
  if (!status.ok()) {
    end(run, status);
    return true;
  }
  if (any && !run->window.empty()) return *moved;
  if (run->next_slice < run->geometry.slices()) return any;
  end(run, {});
  return true;
}

// A slice goes on its way before the next one is looked at, which may cost the tensor work.
Result<bool> PlainEngine::advance_slices(const std::shared_ptr<Run>& run) {
  bool moved = false;
  const SliceRun::Releases releases = [this, &run](SliceRun& slice) {
    return release_for(run, slice);
  };
  for (size_t i = 0;; ++i) {
    if (i == run->window.size()) {
      const Result<bool> added = add_slice(*run);
      if (!added.ok()) return added.status();
      if (!*added) return moved;
    }
    SliceRun& slice = *run->window[i];
    if (slice.is_through()) continue;
    Result<Progress> progress = slice.advance(parts_, run->mailbox, releases, run->first_taken);
    if (!progress.ok()) return progress.status();
    if (slice.slice() == 0) run->first_taken = slice.taken();
    moved |= *progress == Progress::done;
  }
}

// Whether the next slice has joined the window.
Result<bool> PlainEngine::add_slice(Run& run) {
  const bool room = run.window.size() < static_cast<size_t>(limits_.slices_in_flight);
  if (!room || run.next_slice == run.geometry.slices()) return false;
  const Result<bool> ready = run.tensor->ready(run.next_slice);
  if (!ready.ok() || !*ready) return ready;
  run.window.push_back(
      std::make_unique<SliceRun>(run.operation, run.geometry, *run.tensor, run.next_slice++));
  return true;
}

// Called by links on any thread, once per frame; the counting happens on the loop.
std::function<void()> PlainEngine::release_for(const std::shared_ptr<Run>& run, SliceRun& slice) {
  return [this, post = post_, alive = alive_, run, at = &slice] {
    post([this, alive, run, at] {
      --at->unreleased;
      if (!*alive) return;
      if (!run->ended) return pump();
      if (!run->is_lent()) conclude(run);
    });
  };
}

Status PlainEngine::retire_slices(Run& run) {
  for (const std::unique_ptr<SliceRun>& slice : run.window) {
    if (!slice->is_through()) break;
    if (std::exchange(slice->finished, true)) continue;
    if (Status status = run.tensor->finished(slice->slice()); !status.ok()) return status;
  }
  while (!run.window.empty() && run.window.front()->finished && run.window.front()->unreleased == 0)
    release_front(run);
  return {};
}

void PlainEngine::release_front(Run& run) {
  run.window.front()->recycle(scratch_);
  run.tensor->released(run.window.front()->slice());
  run.window.pop_front();
}

// From here on nothing of the operation moves, and what still comes of it is dropped.
void PlainEngine::end(const std::shared_ptr<Run>& run, Status status) {
  const OpKey key = run->operation.key;
  run->ended = true;
  run->end = std::move(status);
  run->mailbox.clear();
  for (const std::unique_ptr<SliceRun>& slice : run->window) slice->take_back_recv_buffer();
  runs_.erase(key);
  past_[{key.epoch, key.group}].add(key.seq);
  if (!run->is_lent()) conclude(run);  // Else with the last release.
}

void PlainEngine::conclude(const std::shared_ptr<Run>& run) {
  while (!run->window.empty()) release_front(*run);
  run->operation.done(run->end);
  if (!runs_.empty()) pump_soon();
}

void PlainEngine::cancel(const OpKey& key, const Status& cause) {
  unstash(key);
  past_[{key.epoch, key.group}].add(key.seq);
  if (const std::shared_ptr<Run> run = find(key)) end(run, cause);
}

void PlainEngine::abort(uint32_t epoch, const Status& cause) {
  std::erase_if(stash_, [&](const auto& entry) {
    if (entry.first.epoch != epoch) return false;
    stash_bytes_ -= entry.second.bytes;
    return true;
  });
  const auto snapshot = runs_;
  for (const auto& [key, run] : snapshot)
    if (key.epoch == epoch && !run->ended) end(run, cause);
  std::erase_if(past_, [&](const auto& entry) { return entry.first.first == epoch; });
}

Engine::Waiting PlainEngine::waiting(const OpKey& key) const {
  const std::shared_ptr<Run> run = find(key);
  if (run == nullptr) return {"its turn", -1};
  if (run->window.empty()) {
    const int rank = run->tensor->missing();
    return {rank < 0 ? "its tensor" : "the tensor of rank " + std::to_string(rank), rank};
  }
  for (const std::unique_ptr<SliceRun>& slice : run->window) {
    const Step* step = slice->at();
    if (step == nullptr) continue;
    const bool sending = step->kind == StepKind::send || step->kind == StepKind::notify;
    const int rank = run->operation.execution->plan.hosts[step->peer].front();
    return {"slice " + std::to_string(slice->slice()) + ": chunk " + std::to_string(step->chunk) +
                (sending ? " to" : " from") + " rank " + std::to_string(rank),
            rank};
  }
  return {"its last frames to be sent", -1};
}

}  // namespace

std::shared_ptr<const ExecutionPlan> make_execution_plan(const Plan& plan, int self) {
  ExecutionPlan execution{plan, self, steps_of(plan, self), {}};
  std::map<std::pair<bool, int>, int> counts;  // Whether sent, peer.
  for (const Step& step : execution.steps) {
    const bool sending = step.kind == StepKind::send || step.kind == StepKind::notify;
    execution.ordinals.push_back(step.kind == StepKind::finish ? 0
                                                               : counts[{sending, step.peer}]++);
  }
  return std::make_shared<const ExecutionPlan>(std::move(execution));
}

std::unique_ptr<Engine> make_engine(Device& device, Wire& wire, const EngineLimits& limits,
                                    Engine::Post post) {
  return std::make_unique<PlainEngine>(device, wire, limits, std::move(post));
}

}  // namespace tutti
