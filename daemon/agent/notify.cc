#include "daemon/agent/notify.h"

#include <unistd.h>

#include <charconv>

#include "daemon/base/address.h"
#include "daemon/base/fd.h"
#include "daemon/base/program.h"

namespace tutti {
namespace {

// 0: it is not set, or no number.
int64_t number_of_environment(const char* name) {
  const std::string text = variable(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? value : 0;
}

}  // namespace

void notify(const std::string& path, const std::string& state) {
  Result<SocketAddress> address = unix_address(path);
  if (!address.ok()) return;
  if (path[0] == '@') address->get()->sa_data[0] = '\0';
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  (void)sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL, address->get(),
               address->bytes);
}

std::string reloading_state() {
  const auto now = std::chrono::duration_cast<Micros>(Clock::now().time_since_epoch());
  return "RELOADING=1\nMONOTONIC_USEC=" + std::to_string(now.count());
}

Micros watchdog_interval() {
  const int64_t pid = number_of_environment("WATCHDOG_PID");
  if (pid != 0 && pid != getpid()) return Micros(0);
  return Micros(number_of_environment("WATCHDOG_USEC"));
}

Watchdog::Watchdog(Loop& loop, std::string path, Micros interval)
    : loop_(loop), path_(std::move(path)), interval_(interval) {
  if (interval_ > Micros(0)) feed();
}

void Watchdog::feed() {
  notify(path_, "WATCHDOG=1");
  timer_ = loop_.at(Clock::now() + interval_ / 2, [this] { feed(); });
}

}  // namespace tutti
