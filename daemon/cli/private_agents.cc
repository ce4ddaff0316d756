#include "daemon/cli/private_agents.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "daemon/control/admin_client.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kDirectory = "tutti-torch-";  // As client/python/tutti/torch/_agent.py.
constexpr std::string_view kSocket = "tuttid.sock";
constexpr int kAnswerTimeoutMs = 2'000;

// Where such directories are made: in the first of these that serves.
std::set<fs::path> parents() {
  const char* temporary = std::getenv("TMPDIR");
  std::set<fs::path> found;
  for (const char* parent : {"/tmp", "/dev/shm", temporary == nullptr ? "" : temporary}) {
    std::error_code error;
    const fs::path path = fs::canonical(parent, error);  // So that none is looked at twice.
    if (!error) found.insert(path);
  }
  return found;
}

// When the socket below a directory was made, if both are this user's.
std::optional<std::pair<time_t, long>> made_by_us(const fs::path& directory) {
  struct stat there {};
  if (lstat(directory.c_str(), &there) != 0 || there.st_uid != geteuid() || !S_ISDIR(there.st_mode))
    return std::nullopt;
  if (lstat((directory / kSocket).c_str(), &there) != 0 || there.st_uid != geteuid() ||
      !S_ISSOCK(there.st_mode))
    return std::nullopt;
  return std::pair(there.st_mtim.tv_sec, there.st_mtim.tv_nsec);
}

// Sockets of private agents, in the order in which they were made.
std::vector<std::string> private_sockets() {
  std::vector<std::pair<std::pair<time_t, long>, std::string>> found;
  for (const fs::path& parent : parents()) {
    std::error_code error;
    for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
         entry.increment(error)) {
      if (!entry->path().filename().string().starts_with(kDirectory)) continue;
      if (const auto made = made_by_us(*entry))
        found.emplace_back(*made, (entry->path() / kSocket).string());
    }
  }
  std::ranges::sort(found);
  std::vector<std::string> sockets;
  for (auto& [made, socket] : found) sockets.push_back(std::move(socket));
  return sockets;
}

// An agent that was killed leaves its socket behind.
bool answers(const std::string& address) {
  return admin_status(address, true, kAnswerTimeoutMs).status().code() != Code::unavailable;
}

std::vector<std::string> private_agents() {
  std::vector<std::string> found = private_sockets();
  for (std::string& socket : found) socket.insert(0, kUnix);
  const auto silent = std::stable_partition(found.begin(), found.end(), answers);
  if (silent != found.end())
    std::fprintf(stderr, "tutti: no agent answers at %zu private sockets, such as %s\n",
                 static_cast<size_t>(found.end() - silent), silent->c_str());
  found.erase(silent, found.end());
  return found;
}

}  // namespace

std::vector<std::string> agents_to_ask(const std::string& address) {
  const bool may_be_private = address.starts_with(kUnix) && address == default_address();
  if (!may_be_private || answers(address)) return {address};
  std::vector<std::string> found = private_agents();
  return found.empty() ? std::vector{address} : found;
}

Result<std::string> agent_to_ask(const std::string& address) {
  std::vector<std::string> found = agents_to_ask(address);
  if (found.size() == 1) return std::move(found.front());
  std::string list;
  for (const std::string& each : found) list += "\n  " + each;
  return failed_precondition("several private agents run here; name one of them by --address:" +
                             list);
}

}  // namespace tutti
