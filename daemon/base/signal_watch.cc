#include "daemon/base/signal_watch.h"

#include <sys/signalfd.h>

#include <csignal>

namespace tutti {
namespace {

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

}  // namespace

void block_signals(std::initializer_list<int> signals) {
  const sigset_t set = set_of(signals);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

void unblock_signals(std::initializer_list<int> signals) {
  const sigset_t set = set_of(signals);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

SignalWatch::SignalWatch(Loop& loop, std::initializer_list<int> signals,
                         std::function<void(int)> handler)
    : loop_(loop) {
  const sigset_t set = set_of(signals);
  signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  const auto read_all = [fd = signals_.get(), handler = std::move(handler)](uint32_t) {
    signalfd_siginfo info{};
    while (read(fd, &info, sizeof info) == sizeof info) handler(static_cast<int>(info.ssi_signo));
  };
  require(loop.watch(signals_.get(), EPOLLIN, read_all).ok(), "watching a fresh signalfd");
}

}  // namespace tutti
