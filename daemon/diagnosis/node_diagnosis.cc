// All checks in the order in which to fix what they find, and their report.
#include <algorithm>
#include <array>

#include "daemon/base/text.h"
#include "daemon/diagnosis/checks.h"

namespace tutti {
namespace {

constexpr std::array kChecks = {check_settings,      check_tokens,       check_directories,
                                check_worker,        check_certificates, check_kernel,
                                check_shared_memory, check_memory,       check_overcommit,
                                check_locked_memory, check_descriptors,  check_gpus,
                                check_agent,         check_listen,       check_coordinator,
                                check_etcd,          check_metrics,      check_mesh,
                                check_versions,      check_clocks,       check_data_ports,
                                check_congestion,    check_mtu};

}  // namespace

std::vector<Check> examine(const NodeView& node) {
  std::vector<Check> checks;
  for (const auto& check : kChecks) checks.push_back(check(node));
  return checks;
}

bool any_failed(const std::vector<Check>& checks) {
  return std::ranges::any_of(checks, [](const Check& one) { return one.grade == Grade::fail; });
}

std::string doctor_text(const std::vector<Check>& checks) {
  std::string out;
  for (const Check& check : checks) {
    std::string line(name_of(check.grade));
    line.resize(6, ' ');
    line += check.subject;
    line.resize(std::max<size_t>(line.size() + 1, 21), ' ');
    out += line + printable(check.finding) + "\n";
    if (!check.remedy.empty()) out += std::string(21, ' ') + "-> " + printable(check.remedy) + "\n";
  }
  return out;
}

std::string doctor_json(const std::vector<Check>& checks) {
  Json json;
  json.open('{').key("checks").open('[');
  for (const Check& check : checks)
    json.open('{')
        .field("subject", check.subject)
        .field("grade", name_of(check.grade))
        .field("finding", check.finding)
        .field("remedy", check.remedy)
        .close();
  json.close().close();
  return json.line();
}

}  // namespace tutti
