#include "daemon/engine/nccl_tensors.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

namespace tutti {
namespace {

// More pieces than a stream is given commands for at once: a number is overwritten when it was
// read.
constexpr uint64_t kGateNumbers = 255;

}  // namespace

NcclTensors::NcclTensors(GpuSet& gpus, std::function<void()> wake, const Operation& operation,
                         const Geometry& pieces, ScratchPool& scratch)
    : DeviceTensors(gpus, std::move(wake), operation, pieces),
      link_(*operation.nccl),
      scratch_(scratch),
      ticket_(link_.launch_order.add([this] {
        if (Status begun = begin(); !begun.ok()) return fail(begun);
        go_on();
      })) {}

NcclTensors::~NcclTensors() {
  lifetime_.end();
  if (!is_over_) cancel();
  while (is_held() && !gpus_.fault().is_set() && !may_go_on())
    std::this_thread::sleep_for(Millis(1));
  // Here, as the base does not know of the gate.
  if (await_end() && piece_memory_.data != nullptr) scratch_.give_back(piece_memory_);
  for (int i = 0; i < works_; ++i) link_.communicator.settled();
  leave();
}

// ---- Beginning and end ----

Status NcclTensors::finished(uint64_t) {
  link_.launch_order.set_ready(ticket_);
  return {};
}

Status NcclTensors::begin() {
  if (Status added = add_lane(link_.gpu); !added.ok()) return added;
  const Result<ScratchPool::Block> memory = scratch_.take(kPieceBytes);  // As Engine::reserve.
  if (!memory.ok()) return memory.status();
  piece_memory_ = *memory;
  const Result<GpuSet::Pinned> gate = stage(0, (1 + kGateNumbers) * sizeof(uint64_t));
  if (!gate.ok()) return gate.status();
  gate_ = new (gate->data) std::atomic<uint64_t>[1 + kGateNumbers]();
  return {};
}

Status NcclTensors::finish() {
  if (Status passed = pass_streams(); !passed.ok()) return passed;
  is_over_ = true;
  const Status notified = notify().status();
  link_.launch_order.pass(ticket_);
  return notified;
}

void NcclTensors::cancel() {
  is_over_ = true;
  has_failed_ = false;
  held_until_ = Clock::now() + kAbortBound;
  DeviceTensors::cancel();
  leave();
}

// A gate that is shut holds NCCL's work until the epoch, which ends whenever such an operation is
// cancelled, has had the communicator aborted: that work then does nothing.
bool NcclTensors::may_go_on() {
  const TimePoint now = Clock::now();
  if (link_.communicator.is_aborting()) held_until_ = std::min(held_until_, now + kAbortGrace);
  return works_ == 0 || link_.communicator.is_ended() || now >= held_until_;
}

void NcclTensors::release_streams() {
  if (gate_ != nullptr) gate_->store(UINT64_MAX / 2);
  DeviceTensors::release_streams();
}

// The engine ends this operation when the epoch ends.
void NcclTensors::fail(const Status& cause, const std::function<void(const Status&)>& tell) {
  is_over_ = has_failed_ = true;
  launches_.clear();
  tell(cause);
}

void NcclTensors::leave() {
  if (!std::exchange(has_left_, true)) link_.launch_order.leave(ticket_);
}

bool NcclTensors::settled() {
  if (gpus_.fault().is_set()) return true;
  const bool is_done = DeviceTensors::settled();
  return is_done && is_over_ && !is_launching_ && !has_failed_;
}

// ---- Piece by piece ----

void NcclTensors::go_on() {
  if (next_piece_ == geometry_.slices())
    launches_.add([this] { return finish(); }, ranks_.all().size());
  else
    reduce_piece(geometry_.slice(0, next_piece_));
  if (Status launched = launch_some(); !launched.ok()) fail(launched);
}

bool NcclTensors::is_mean() const {
  return operation_.op == Op::mean && reduces(operation_.execution->plan.collective);
}

uint32_t NcclTensors::world() const {
  return static_cast<uint32_t>(world_size(operation_.execution->plan));
}

// The host's contribution, in the operation's own type.
void NcclTensors::reduce_piece(const Range& piece) {
  for (const Range& part : pieces_to_fold(0, piece))
    launches_.add([this, part, to = place_of(part, piece)] { return fold_part(part, to); },
                  ranks_.folds().size());
  launches_.add([this] { return pass_gate(); }, 2);
  launches_.add([this, piece] { return launch(piece); });
}

Status NcclTensors::fold_part(const Range& part, std::byte* to) {
  Lane& lane = *lanes_.front();
  const Inputs from = inputs(0, part);
  if (from.at.empty()) return {};
  const uint32_t divisor = divides_first() ? world() : 1;
  if (from.at.size() == 1 && from.factors.empty() && divisor == 1)
    return copy(lane, from.at.front(), {to}, part.count * size_of(operation_.dtype));
  return fold(lane, from, {{to, operation_.dtype}}, {0, part.count}, divisor);
}

// Where a part of the piece lies in the piece's memory.
std::byte* NcclTensors::place_of(const Range& part, const Range& piece) const {
  return piece_memory_.data + (part.first - piece.first) * size_of(operation_.dtype);
}

// Behind the folds of a piece. Once the operation is cancelled they may have done nothing, and what
// NCCL would give the other hosts is no result, which they would take for one. So its work waits
// for a word that a copy stores, which does nothing either from then on.
Status NcclTensors::pass_gate() {
  Lane& lane = *lanes_.front();
  std::atomic<uint64_t>& number = gate_[1 + next_piece_ % kGateNumbers];
  number = next_piece_ + 1;
  if (Status opens = copy(lane, reinterpret_cast<const std::byte*>(&number),
                          {reinterpret_cast<std::byte*>(gate_)}, sizeof(*gate_));
      !opens.ok())
    return opens;
  return gpu(lane).wait(*lane.stream, gate_, next_piece_ + 1);
}

// Behind the work of the operation before.
Status NcclTensors::launch(const Range& piece) {
  const Plan& plan = operation_.execution->plan;
  Lane& lane = *lanes_.front();
  if (link_.last != nullptr)
    if (Status waits = gpu(lane).wait(*lane.stream, *link_.last); !waits.ok()) return waits;
  is_launching_ = true;
  ++works_;
  link_.communicator.launch({.collective = plan.collective,
                             .dtype = operation_.dtype,
                             .op = operation_.op,
                             .root = has_root(plan.collective) ? host_of(plan, plan.root) : 0,
                             .from = piece_memory_.data,
                             .to = piece_memory_.data,
                             .count = piece.count,
                             .stream = gpu(lane).native(*lane.stream)},
                            lifetime_.guard([this](const Status& queued) { on_launched(queued); }));
  return {};
}

void NcclTensors::on_launched(const Status& queued) {
  is_launching_ = false;
  if (is_over_) {  // NCCL's work came behind what cancel() asked the lane to tell.
    static_cast<void>(notify());
    return wake_();
  }
  if (!queued.ok()) return fail(queued, link_.on_refused);
  Lane& lane = *lanes_.front();
  Result<std::unique_ptr<Event>> launched = gpu(lane).record(*lane.stream);
  if (!launched.ok()) return fail(launched.status());
  link_.last = *std::move(launched);
  const Range piece = geometry_.slice(0, next_piece_++);
  for (const Range& part : ranks_.pieces(0, piece))
    launches_.add([this, part, from = place_of(part, piece)] { return write_part(part, from); });
  go_on();
}

Status NcclTensors::write_part(const Range& part, const std::byte* from) {
  Lane& lane = *lanes_.front();
  const std::vector<std::byte*> outputs = ranks_.outputs(0, part);
  if (outputs.empty()) return {};
  if (!is_mean() || divides_first())
    return copy(lane, from, outputs, part.count * size_of(operation_.dtype));
  std::vector<Target> targets;
  for (std::byte* output : outputs) targets.push_back({output, operation_.dtype});
  const Operand sum{from, operation_.dtype};
  return gpu(lane).reduce(*lane.stream, targets, {&sum, 1},
                          {.count = part.count, .divisor = world()});
}

}  // namespace tutti
