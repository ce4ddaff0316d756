#include "daemon/group/outbox.h"

#include <utility>

namespace tutti {
namespace {

// A frame of so many messages is full: some 100 KiB.
constexpr int kMessagesMost = 1024;

}  // namespace

Outbox::Outbox(Loop& loop, size_t hosts, std::chrono::microseconds budget, Send send)
    : loop_(loop), budget_(budget), send_(std::move(send)), waiting_(hosts) {}

Outbox::~Outbox() {
  *alive_ = false;
  loop_.cancel(timer_);
}

void Outbox::add(int host, const v1::Control& control, Hurry hurry) {
  v1::ControlBatch& batch = waiting_[static_cast<size_t>(host)];
  *batch.add_controls() = control;
  if (hurry == Hurry::now || batch.controls_size() >= kMessagesMost) return flush(host);
  if (hurry == Hurry::this_turn || budget_.count() == 0) return flush_this_turn();
  flush_at_budget();
}

void Outbox::flush(int host) {
  v1::ControlBatch batch;
  batch.Swap(&waiting_[static_cast<size_t>(host)]);
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
