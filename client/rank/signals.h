// Signals are for the caller's threads: threads of the library start with all of them blocked.
#pragma once

#include <pthread.h>

#include <csignal>

namespace tutti::client {

// Blocks all signals of this thread until destroyed; a thread that starts meanwhile inherits that.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace tutti::client
