#include "daemon/worker/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>

namespace tutti {
namespace {

// Returns none if the process is gone or not visible.
std::vector<pid_t> threads_of(pid_t process) {
  std::vector<pid_t> threads;
  std::error_code error;
  std::filesystem::directory_iterator at("/proc/" + std::to_string(process) + "/task", error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    threads.push_back(thread);
  }
  return threads;
}

}  // namespace

Cores::Cores() : own_(of_thread(0).value_or(Set{})), count_(count_of(own_)) {}

size_t Cores::count_of(const Set& set) {
  return std::transform_reduce(set.begin(), set.end(), size_t{0}, std::plus(),
                               [](unsigned long word) { return std::popcount(word); });
}

std::optional<Cores::Set> Cores::of_thread(pid_t thread) {
  Set set{};
  const auto to = reinterpret_cast<cpu_set_t*>(set.data());
  return sched_getaffinity(thread, sizeof(set), to) == 0 ? std::optional(set) : std::nullopt;
}

std::optional<Cores::Set> Cores::of_process(pid_t process) {
  std::optional<Set> all;
  for (const pid_t thread : threads_of(process)) {
    const std::optional<Set> one = of_thread(thread);
    if (!one) continue;  // The thread has ended.
    if (!all) all.emplace();
    std::ranges::transform(*all, *one, all->begin(), std::bit_or());
  }
  return all;
}

Cores::Set Cores::union_of(const std::vector<pid_t>& processes) const {
  Set all{};
  for (const pid_t process : processes) {
    const std::optional<Set> one = of_process(process);
    if (!one) return own_;
    std::ranges::transform(all, *one, all.begin(), std::bit_or());
  }
  std::ranges::transform(all, own_, all.begin(), std::bit_and());
  return all == Set{} ? own_ : all;
}

void Cores::bind_to(const std::vector<pid_t>& processes) {
  const Set set = union_of(processes);
  count_ = count_of(set);
  quota_ = cpu_quota();
  for (const pid_t thread : threads_of(getpid()))
    sched_setaffinity(thread, sizeof(set), reinterpret_cast<const cpu_set_t*>(set.data()));
}

}  // namespace tutti
