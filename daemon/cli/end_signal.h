// How commands that go on for long are ended: by SIGINT, SIGTERM or SIGHUP, or a key.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <array>

#include "daemon/base/fd.h"

namespace tutti {

// From its construction on these signals end nothing but a wait().
class EndSignal {
 public:
  EndSignal() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    descriptor_.reset(signalfd(-1, &signals, SFD_CLOEXEC));
  }

  enum class Came { nothing, signal, input };
  // Waits for a signal or until `input`, if it is not -1, can be read.
  Came wait(int timeout_ms, int input = -1) const {
    std::array<pollfd, 2> watched = {
        pollfd{.fd = descriptor_.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = input, .events = POLLIN, .revents = 0}};
    if (poll(watched.data(), watched.size(), timeout_ms) <= 0) return Came::nothing;
    return watched[0].revents != 0 ? Came::signal : Came::input;
  }

 private:
  Fd descriptor_;
};

}  // namespace tutti
