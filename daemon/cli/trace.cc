// `tutti trace`: what the ranks of a job called last.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "daemon/cli/cli.h"
#include "daemon/cli/trace_report.h"
#include "daemon/control/admin_client.h"
#include "daemon/diagnosis/diagnosis.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

constexpr uint32_t kLastShown = 50;  // Of a table, where nothing else is asked for.

Status write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file.flush()) return {};
  return invalid_argument("cannot write " + path + "; choose another place");
}

// The format has room for one job.
Status check_one_owner(const v1::TraceReply& reply) {
  const std::vector<JobOwner> owners = owners_of(reply);
  if (owners.size() < 2) return {};
  std::string list;
  for (const JobOwner& owner : owners) list += (list.empty() ? "" : ", ") + describe(owner);
  return failed_precondition("several have a job of this name: " + list +
                             "; ask as the one whose job you mean");
}

Status write_torch(const std::string& directory, const v1::TraceReply& reply) {
  if (Status s = check_one_owner(reply); !s.ok()) return s;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return invalid_argument("cannot make " + directory + ": " + error.message());
  for (const auto& [rank, bytes] : trace_torch(reply))
    if (Status s = write_file(directory + "/rank_" + std::to_string(rank), bytes); !s.ok())
      return s;
  return {};
}

}  // namespace

int trace_command(const TraceOptions& options) {
  const bool exports = !options.chrome.empty() || !options.torch.empty();
  const uint32_t last = options.last ? *options.last : exports || options.json ? 0 : kLastShown;
  const Result<v1::TraceReply> reply =
      admin_trace(options.address, options.job, last, kCallTimeoutMs);
  if (!reply.ok()) return report_status(reply.status());
  if (reply->hosts().empty())
    return report_status(suggest_job(not_found("no trace of a job '" + options.job +
                                               "' is kept; tutti status lists the jobs that run"),
                                     options.address, options.job));
  Status written;
  if (!options.chrome.empty()) written = write_file(options.chrome, trace_chrome(*reply));
  if (written.ok() && !options.torch.empty()) written = write_torch(options.torch, *reply);
  if (!written.ok() || (exports && !options.json)) return report_status(written);
  const std::string out = options.json ? trace_json(*reply, last) + "\n" : trace_text(*reply, last);
  std::fputs(out.c_str(), stdout);
  return 0;
}

}  // namespace tutti
