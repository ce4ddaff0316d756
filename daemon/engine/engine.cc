#include "daemon/engine/engine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "daemon/engine/device_tensors.h"
#include "daemon/engine/ended_operations.h"
#include "daemon/engine/nccl_tensors.h"
#include "daemon/engine/rank_tensors.h"
#include "daemon/engine/slice_run.h"

namespace tutti {
namespace {

// Where NCCL moves the values, frames carry none of them.
Geometry frames_of(const Operation& operation) {
  return {operation.execution->plan, operation.dtype,
          operation.nccl != nullptr ? 0 : operation.count, operation.slice_bytes,
          operation.counts != nullptr ? std::span<const uint64_t>(*operation.counts)
                                      : std::span<const uint64_t>()};
}

// The tensor in one chunk, in pieces for NCCL.
Geometry pieces_of(const Operation& operation) {
  Plan plan = operation.execution->plan;
  plan.strategies.global = {StrategyKind::centralized};
  return {plan, operation.dtype, operation.count, NcclTensors::kPieceBytes};
}

// An operation that was started: its slices in flight, and how far it is. Shared with the release
// callback of every frame it sent, so that its memory outlives its end until the links have
// released it. Links may drop the last reference on a thread of theirs; by then finish() has freed,
// on the loop, what only the loop may free.
struct Run {
  explicit Run(Operation given)
      : operation(std::move(given)),
        geometry(frames_of(operation)),
        pieces(operation.nccl != nullptr ? std::optional(pieces_of(operation)) : std::nullopt),
        tensor(operation.tensor) {}

  Operation operation;
  const Geometry geometry;
  const std::optional<Geometry> pieces;  // Where NCCL moves the values.
  std::shared_ptr<HostTensor> tensor;
  std::vector<std::unique_ptr<SliceRun>> in_flight;  // Slices, ascending.
  uint64_t next_slice = 0;
  size_t first_taken = 0;  // Steps of the first slice.
  Mailbox mailbox;
  bool ended = false;
  Status end;  // Passed to done() once the links have released everything.

  bool has_unreleased() const {
    return std::ranges::any_of(in_flight, [](const auto& slice) { return slice->unreleased != 0; });
  }
};

OpId id_of(const FrameHeader& header) { return {header.epoch, header.group, header.op_seq}; }

class SliceEngine final : public Engine {
 public:
  SliceEngine(Device& device, const EngineLimits& limits, Post post)
      : limits_(limits),
        post_(std::move(post)),
        scratch_(device),
        stream_(stream_of(device)),
        parts_{device, *stream_, scratch_} {}
  ~SliceEngine() override;

  void start(Operation operation) override;
  void resume(const OpId& id) override;
  Status on_frame(Frame frame) override;
  std::shared_ptr<RecvBuffer> recv_buffer_for(const FrameHeader& header) override;
  void retry_sends() override { post_advance(); }
  Status reserve(GpuSet& gpus, const NcclLink& link) override;
  void cancel(const OpId& id, const Status& cause) override;
  bool settle() override;
  void abort(uint32_t epoch, const Status& cause) override;
  Blocker blocker(const OpId& id) const override;
  uint64_t folded_bytes() const override { return parts_.folded_bytes; }

 private:
  using Group = std::pair<uint32_t, uint32_t>;  // Epoch, group.
  struct EarlyFrames {
    size_t bytes = 0;
    Mailbox frames;
  };

  static std::unique_ptr<Stream> stream_of(Device& device);
  std::shared_ptr<HostTensor> make_tensor(const Run& run);
  ScratchPool& scratch_of(GpuSet& gpus, int gpu);
  void post_advance();
  void advance_all();
  bool advance(const std::shared_ptr<Run>& run);
  Result<bool> advance_slices(const std::shared_ptr<Run>& run);
  Result<bool> add_slice(Run& run);
  std::function<void()> make_release(const std::shared_ptr<Run>& run, SliceRun& slice);
  Status retire_slices(Run& run);
  void release_front(Run& run);
  void end(const std::shared_ptr<Run>& run, Status status);
  void finish(const std::shared_ptr<Run>& run);
  bool has_ended(const OpId& id) const;
  static void cancel_unsettled(Run& run, const Status& cause);
  Blocker input_of(const Run& run, const char* otherwise) const;
  int find_culprit(const OpId& id, const std::vector<int>& late) const;
  Status keep_early(const OpId& id, const FrameTag& tag, Frame frame);
  Mailbox take_early(const OpId& id);
  void accept_early(const std::shared_ptr<Run>& run);
  std::shared_ptr<Run> find(const OpId& id) const;

  const EngineLimits limits_;
  const Post post_;
  ScratchPool scratch_;
  GpuSet* gpus_ = nullptr;                                   // The one that operations have.
  std::map<int, std::shared_ptr<ScratchPool>> gpu_scratch_;  // By GPU.
  std::unique_ptr<Stream> stream_;
  EngineParts parts_;
  std::map<OpId, std::shared_ptr<Run>> runs_;
  std::map<OpId, std::shared_ptr<Run>> unsettled_;  // Ended, while GPUs still work for them.
  std::map<Group, EndedOperations> ended_;
  std::map<OpId, EarlyFrames> early_;
  size_t early_bytes_ = 0;
  bool advance_posted_ = false;
  std::vector<std::shared_ptr<Run>> advancing_;  // Memory for advance_all().
  Lifetime lifetime_;
};

// Operations use the pools, and GPUs may use them longer.
SliceEngine::~SliceEngine() {
  lifetime_.end();
  unsettled_.clear();
  runs_.clear();
  for (auto& [gpu, scratch] : gpu_scratch_) gpus_->free_later(std::move(scratch));
}

std::unique_ptr<Stream> SliceEngine::stream_of(Device& device) {
  Result<std::unique_ptr<Stream>> stream = device.make_stream();
  require(stream.ok(), "a device that was opened gives streams");
  return std::move(*stream);
}

void SliceEngine::start(Operation operation) {
  const OpId id = operation.id;
  require(!has_ended(id), "an operation that was cancelled does not start");
  const auto run = std::make_shared<Run>(std::move(operation));
  if (run->tensor == nullptr) run->tensor = make_tensor(*run);
  if (run->operation.helpers != nullptr)
    run->operation.helpers->begin(lifetime_.guard([this, id] { resume(id); }));
  require(runs_.emplace(id, run).second, "an operation starts once");
  accept_early(run);
  advance_all();
}

std::shared_ptr<HostTensor> SliceEngine::make_tensor(const Run& run) {
  if (run.operation.gpus == nullptr)
    return std::make_shared<RankTensors>(run.operation, run.geometry);
  const auto wake = [post = post_, task = lifetime_.guard([this, id = run.operation.id] {
    resume(id);
  })] { post(task); };
  GpuSet& gpus = *(gpus_ = run.operation.gpus);
  if (run.operation.nccl == nullptr)
    return std::make_shared<DeviceTensors>(gpus, wake, run.operation, run.geometry);
  ScratchPool& scratch = scratch_of(gpus, run.operation.nccl->gpu);
  return std::make_shared<NcclTensors>(gpus, wake, run.operation, *run.pieces, scratch);
}

ScratchPool& SliceEngine::scratch_of(GpuSet& gpus, int gpu) {
  gpus_ = &gpus;
  std::shared_ptr<ScratchPool>& scratch = gpu_scratch_[gpu];
  if (scratch == nullptr) scratch = std::make_shared<ScratchPool>(gpus.gpu(gpu));
  return *scratch;
}

Status SliceEngine::reserve(GpuSet& gpus, const NcclLink& link) {
  ScratchPool& scratch = scratch_of(gpus, link.gpu);
  std::vector<ScratchPool::Block> taken;
  Status status;
  while (status.ok() && taken.size() < NcclLink::kOpsAtOnce) {
    const Result<ScratchPool::Block> block = scratch.take(NcclTensors::kPieceBytes);
    if (block.ok()) taken.push_back(*block);
    status = block.status();
  }
  for (const ScratchPool::Block& block : taken) scratch.give_back(block);
  return status;
}

void SliceEngine::resume(const OpId& id) {
  if (find(id) != nullptr) return advance_all();
  const auto unsettled = unsettled_.find(id);
  if (unsettled == unsettled_.end() || !unsettled->second->tensor->settled()) return;
  const std::shared_ptr<Run> run = unsettled->second;
  unsettled_.erase(unsettled);
  if (!run->has_unreleased()) finish(run);
}

// Reports each host whose early frames disagree once.
void SliceEngine::accept_early(const std::shared_ptr<Run>& run) {
  std::set<int> others;
  for (auto& [tag, frame] : take_early(run->operation.id))
    if (frame.header.agreement == run->operation.agreement)
      run->mailbox.emplace(tag, std::move(frame));
    else
      others.insert(frame.header.from);
  for (const int from : others)
    if (!run->ended && run->operation.mismatch) run->operation.mismatch(from);
}

Status SliceEngine::on_frame(Frame frame) {
  const FrameHeader header = frame.header;
  const OpId id = id_of(header);
  const FrameTag tag = tag_of(header);
  const std::shared_ptr<Run> run = find(id);
  if (run == nullptr) return has_ended(id) ? Status() : keep_early(id, tag, std::move(frame));
  if (header.agreement != run->operation.agreement) {
    if (run->operation.mismatch) run->operation.mismatch(header.from);
    return {};
  }
  if (!run->mailbox.emplace(tag, std::move(frame)).second) return data_loss("a frame came twice");
  advance_all();
  return {};
}

std::shared_ptr<RecvBuffer> SliceEngine::recv_buffer_for(const FrameHeader& header) {
  const std::shared_ptr<Run> run = find(id_of(header));
  if (run == nullptr || header.agreement != run->operation.agreement) return nullptr;
  for (const std::unique_ptr<SliceRun>& slice : run->in_flight)
    if (slice->slice() == header.slice) return slice->recv_buffer_for(header);
  return nullptr;
}

Status SliceEngine::keep_early(const OpId& id, const FrameTag& tag, Frame frame) {
  const size_t bytes = frame.payload.bytes() + sizeof(FrameHeader);
  if (early_bytes_ + bytes > limits_.kept_early_bytes_max)
    return resource_exhausted("too many frames for operations that have not started");
  EarlyFrames& early = early_[id];
  if (!early.frames.emplace(tag, std::move(frame)).second) return data_loss("a frame came twice");
  early.bytes += bytes;
  early_bytes_ += bytes;
  return {};
}

Mailbox SliceEngine::take_early(const OpId& id) {
  auto early = early_.extract(id);
  if (early.empty()) return {};
  early_bytes_ -= early.mapped().bytes;
  return std::move(early.mapped().frames);
}

std::shared_ptr<Run> SliceEngine::find(const OpId& id) const {
  const auto found = runs_.find(id);
  return found == runs_.end() ? nullptr : found->second;
}

bool SliceEngine::has_ended(const OpId& id) const {
  const auto past = ended_.find({id.epoch, id.group});
  return past != ended_.end() && past->second.contains(id.number);
}

void SliceEngine::post_advance() {
  if (advance_posted_) return;
  advance_posted_ = true;
  post_(lifetime_.guard([this] {
    advance_posted_ = false;
    advance_all();
  }));
}

// One pass over the operations in flight. Work that can continue at once is posted, so that the
// loop handles doorbells and deaths between slices.
void SliceEngine::advance_all() {
  // A copy: done() may start or end others.
  std::vector<std::shared_ptr<Run>> runs = std::exchange(advancing_, {});
  for (auto at = runs_.begin(); at != runs_.end();) {
    const OpId first = at->first;
    const OpId last{first.epoch, first.group, UINT64_MAX};
    for (int i = 0; i < limits_.ops_in_flight && at != runs_.end() && at->first <= last; ++i, ++at)
      runs.push_back(at->second);
    at = runs_.upper_bound(last);
  }
  for (const std::shared_ptr<Run>& run : runs)
    if (!run->ended && advance(run) && !runs_.empty()) post_advance();
  runs.clear();
  advancing_ = std::move(runs);
}

// Whether the operation can advance further at once.
bool SliceEngine::advance(const std::shared_ptr<Run>& run) {
  Result<bool> moved = advance_slices(run);
  const bool any = !run->in_flight.empty();
  const Status status = moved.ok() ? retire_slices(*run) : moved.status();
  if (!status.ok()) {
    end(run, status);
    return true;
  }
  if (any && !run->in_flight.empty()) return *moved;
  if (run->next_slice < run->geometry.slices()) return any;
  end(run, {});
  return true;
}

// Advances each slice before it asks for the next one, which may take the tensor work.
Result<bool> SliceEngine::advance_slices(const std::shared_ptr<Run>& run) {
  bool moved = false;
  const SliceRun::Releases releases = [this, &run](SliceRun& slice) {
    return make_release(run, slice);
  };
  for (size_t i = 0;; ++i) {
    if (i == run->in_flight.size()) {
      const Result<bool> added = add_slice(*run);
      if (!added.ok()) return added.status();
      if (!*added) return moved;
    }
    SliceRun& slice = *run->in_flight[i];
    if (slice.is_complete()) continue;
    Result<Progress> progress = slice.advance(parts_, run->mailbox, releases, run->first_taken);
    if (!progress.ok()) return progress.status();
    if (slice.slice() == 0) run->first_taken = slice.steps_taken();
    moved |= *progress == Progress::done;
  }
}

// Whether the next slice was put in flight.
Result<bool> SliceEngine::add_slice(Run& run) {
  const bool room = run.in_flight.size() < static_cast<size_t>(limits_.slices_in_flight);
  if (!room || run.next_slice == run.geometry.slices()) return false;
  const Result<bool> ready = run.tensor->ready(run.next_slice);
  if (!ready.ok() || !*ready) return ready;
  run.in_flight.push_back(
      std::make_unique<SliceRun>(run.operation, run.geometry, *run.tensor, run.next_slice++));
  return true;
}

// Links call the result on any thread, once per frame; the loop counts.
std::function<void()> SliceEngine::make_release(const std::shared_ptr<Run>& run, SliceRun& slice) {
  const auto then = lifetime_.guard([this, run] {
    if (!run->ended) return advance_all();
    if (!run->has_unreleased() && !unsettled_.contains(run->operation.id)) finish(run);
  });
  return [post = post_, then, at = &slice] {
    post([then, at] {
      --at->unreleased;
      then();
    });
  };
}

Status SliceEngine::retire_slices(Run& run) {
  for (const std::unique_ptr<SliceRun>& slice : run.in_flight) {
    if (!slice->is_complete()) break;
    if (std::exchange(slice->finished, true)) continue;
    if (Status status = run.tensor->finished(slice->slice()); !status.ok()) return status;
  }
  while (!run.in_flight.empty() && run.in_flight.front()->finished &&
         run.in_flight.front()->unreleased == 0)
    release_front(run);
  return {};
}

void SliceEngine::release_front(Run& run) {
  run.in_flight.front()->release_scratch();
  run.tensor->released(run.in_flight.front()->slice());
  run.in_flight.erase(run.in_flight.begin());
}

// Stops the operation; its later frames are dropped. done() follows when no memory is borrowed.
void SliceEngine::end(const std::shared_ptr<Run>& run, Status status) {
  const OpId id = run->operation.id;
  run->ended = true;
  run->end = std::move(status);
  run->mailbox.clear();
  for (const std::unique_ptr<SliceRun>& slice : run->in_flight) slice->withdraw_recv_buffers();
  runs_.erase(id);
  ended_[{id.epoch, id.group}].add(id.number);
  if (!run->end.ok()) run->tensor->cancel();
  if (!run->tensor->settled()) unsettled_[id] = run;
  if (!run->has_unreleased() && !unsettled_.contains(id)) finish(run);  // Else later.
}

void SliceEngine::finish(const std::shared_ptr<Run>& run) {
  while (!run->in_flight.empty()) release_front(*run);
  run->operation.done(run->end);
  run->tensor.reset();
  run->operation.memory.clear();
  run->operation.helpers.reset();
  run->operation.nccl.reset();
  if (!runs_.empty()) post_advance();
}

void SliceEngine::cancel(const OpId& id, const Status& cause) {
  take_early(id);
  ended_[{id.epoch, id.group}].add(id.number);
  if (const std::shared_ptr<Run> run = find(id)) end(run, cause);
}

bool SliceEngine::settle() {
  const auto unsettled = unsettled_;  // A copy: done() may start or end others.
  for (const auto& [id, run] : unsettled) resume(id);
  return !unsettled_.empty();
}

void SliceEngine::abort(uint32_t epoch, const Status& cause) {
  std::erase_if(early_, [&](const auto& entry) {
    if (entry.first.epoch != epoch) return false;
    early_bytes_ -= entry.second.bytes;
    return true;
  });
  const auto snapshot = runs_;
  for (const auto& [id, run] : snapshot)
    if (id.epoch == epoch && !run->ended) end(run, cause);
  const auto unsettled = unsettled_;
  for (const auto& [id, run] : unsettled) {
    if (id.epoch != epoch) continue;
    cancel_unsettled(*run, cause);
    resume(id);
  }
  std::erase_if(ended_, [&](const auto& entry) { return entry.first.first == epoch; });
}

// The late rank that the group's first operation with one of them waits for; else the first of
// them. The streams of the others may wait for that operation.
int SliceEngine::find_culprit(const OpId& id, const std::vector<int>& late) const {
  const auto first = runs_.lower_bound({id.epoch, id.group, 0});
  for (auto earlier = first; earlier != runs_.end() && earlier->first < id; ++earlier)
    for (const int rank : earlier->second->tensor->blocking_ranks())
      if (std::ranges::find(late, rank) != late.end()) return rank;
  return late.front();
}

// The rank for whose input the tensor waits, or `otherwise`.
Engine::Blocker SliceEngine::input_of(const Run& run, const char* otherwise) const {
  const std::vector<int> late = run.tensor->blocking_ranks();
  if (late.empty()) return {otherwise, -1};
  const int rank = find_culprit(run.operation.id, late);
  return {"the input of rank " + std::to_string(rank), rank};
}

// For an operation whose frames have all come, while GPUs still work for it.
void SliceEngine::cancel_unsettled(Run& run, const Status& cause) {
  if (!run.end.ok()) return;
  run.end = cause;
  run.tensor->cancel();
}

Engine::Blocker SliceEngine::blocker(const OpId& id) const {
  const auto unsettled = unsettled_.find(id);
  if (unsettled != unsettled_.end()) return input_of(*unsettled->second, "work of GPUs");
  const std::shared_ptr<Run> run = find(id);
  if (run == nullptr) return {"an earlier operation", -1};
  if (run->in_flight.empty()) return input_of(*run, "a rank's input");
  for (const std::unique_ptr<SliceRun>& slice : run->in_flight) {
    if (slice->is_folding()) return input_of(*run, "a fold");
    const Step* step = slice->current_step();
    if (step == nullptr || step->peer < 0) continue;
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
  const std::vector<int>& here = plan.hosts[static_cast<size_t>(self)];
  const auto ranks = static_cast<int>(here.size());
  ExecutionPlan execution{plan, self, steps_of(plan, self), {}, fold_order(plan, self), {}};
  if (plan.reproducible) execution.plan.strategies.local = {StrategyKind::centralized};
  if (ranks != 0) execution.folds = local_folds(execution.plan.strategies.local, ranks);
  std::map<std::pair<bool, int>, int> counts;  // Whether sent, peer.
  for (const Step& step : execution.steps) {
    const bool sending = step.kind == StepKind::send || step.kind == StepKind::notify;
    execution.ordinals.push_back(step.peer < 0 ? 0 : counts[{sending, step.peer}]++);
  }
  return std::make_shared<const ExecutionPlan>(std::move(execution));
}

std::unique_ptr<Engine> make_engine(Device& device, const EngineLimits& limits, Engine::Post post) {
  return std::make_unique<SliceEngine>(device, limits, std::move(post));
}

}  // namespace tutti
