#include "daemon/group/outbox.h"

#include <utility>

namespace tutti {
namespace {

// A frame of so many messages is full: some 100 KiB.
constexpr int kMessagesMost = 1024;
constexpr uint64_t kMessageExtraBytes = 6;  // Before each, at most: its number and length.

}  // namespace

Outbox::Outbox(Loop& loop, size_t hosts, std::chrono::microseconds budget, uint64_t bytes_max,
               Send send)
    : loop_(loop),
      budget_(budget),
      bytes_max_(bytes_max),
      send_(std::move(send)),
      waiting_(hosts) {}

Outbox::~Outbox() {
  *alive_ = false;
  loop_.cancel(timer_);
}

void Outbox::add(int host, const v1::Control& control, Hurry hurry) {
  Waiting& waiting = waiting_[static_cast<size_t>(host)];
  const uint64_t bytes = control.ByteSizeLong() + kMessageExtraBytes;
  if (waiting.bytes + bytes > bytes_max_) flush(host);
  *waiting.batch.add_controls() = control;
  waiting.bytes += bytes;
  if (hurry == Hurry::now || waiting.batch.controls_size() >= kMessagesMost) return flush(host);
  if (hurry == Hurry::this_turn || budget_.count() == 0) return flush_this_turn();
  flush_at_budget();
}

void Outbox::flush(int host) {
  const Waiting waiting = std::exchange(waiting_[static_cast<size_t>(host)], {});
  const v1::ControlBatch& batch = waiting.batch;
  if (batch.controls_size() > 0) send_(host, batch);
}

void Outbox::flush() {
  loop_.cancel(std::exchange(timer_, 0));
  for (int host = 0; host < static_cast<int>(waiting_.size()); ++host) flush(host);
}

void Outbox::flush_this_turn() {
  if (std::exchange(posted_, true)) return;
  loop_.post([this, alive = alive_] {
    if (!*alive) return;
    posted_ = false;
    flush();
  });
}

void Outbox::flush_at_budget() {
  if (timer_ != 0) return;
  timer_ = loop_.at(Clock::now() + budget_, [this] {
    timer_ = 0;
    flush();
  });
}

}  // namespace tutti
