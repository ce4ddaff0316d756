#include "daemon/cli/private_agents.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>

#include "daemon/mesh/mesh.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kDirectory = "tutti-torch-";  // As client/python/tutti/torch/_agent.py.
constexpr std::string_view kSocket = "tuttid.sock";

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
bool is_ours(const fs::path& directory, timespec& made) {
  struct stat there {};
  if (lstat(directory.c_str(), &there) != 0 || there.st_uid != geteuid()) return false;
  if (lstat((directory / kSocket).c_str(), &there) != 0 || !S_ISSOCK(there.st_mode)) return false;
  made = there.st_mtim;
  return there.st_uid == geteuid();
}

std::vector<std::string> private_agents() {
  std::vector<std::pair<std::pair<time_t, long>, std::string>> found;
  for (const fs::path& parent : parents()) {
    std::error_code error;
    for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
         entry.increment(error)) {
      timespec made{};
      if (entry->path().filename().string().starts_with(kDirectory) && is_ours(*entry, made))
        found.push_back(
            {{made.tv_sec, made.tv_nsec}, std::string(kUnix) + (entry->path() / kSocket).string()});
    }
  }
  std::ranges::sort(found);
  std::vector<std::string> addresses;
  for (auto& [made, address] : found) addresses.push_back(std::move(address));
  return addresses;
}

}  // namespace

std::vector<std::string> agents_to_ask(const std::string& address) {
  std::error_code error;
  const bool is_there =
      !address.starts_with(kUnix) || fs::exists(address.substr(kUnix.size()), error) || bool(error);
  if (is_there || address != default_address()) return {address};
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
