// Who may include what: downward only, through doors only, and foreign things only in their home.
#pragma once

#include <map>

#include "tests/tidy/source.h"

namespace tutti::tidy {

// The floors of the house. A room includes only rooms of lower floors.
inline const std::map<std::string, int> kFloors = {
    {"kernel", 1},    {"base", 1},   {"board", 2},     {"trace", 2},   {"schedule", 2},
    {"cuda", 2},      {"nvml", 2},   {"nccl", 3},      {"device", 3},  {"tuning", 3},
    {"transport", 4}, {"engine", 5}, {"group", 6},     {"session", 7}, {"membership", 6},
    {"control", 7},   {"http", 8},   {"diagnosis", 7}, {"worker", 9},  {"agent", 9},
    {"launch", 9},    {"bench", 9},  {"doctor", 9},    {"cli", 10}};

// The room a file belongs to: daemon/<room>/..., and its tests and fuzzers, tests/<room>/... and
// tests/fuzz/<room>_...
inline std::string room_of(const std::string& path) {
  static const std::regex kRoom("^(?:daemon/([a-z]+)/|tests/fuzz/([a-z]+)_|tests/([a-z]+)/)");
  std::smatch match;
  if (!std::regex_search(path, match, kRoom)) return "";
  const std::string room = match[1].str() + match[2].str() + match[3].str();
  return kFloors.contains(room) ? room : "";
}

// Rooms of several subjects have a door for each.
inline const std::set<std::string> kDoors = {
    "daemon/control/address.h",        "daemon/control/admin_client.h",
    "daemon/control/passes.h",         "daemon/control/coordinator_client.h",
    "daemon/control/tls_files.h",      "daemon/control/status_json.h",
    "daemon/membership/election.h",    "daemon/membership/rules.h",
    "daemon/membership/state_store.h", "daemon/membership/roster_message.h",
    "daemon/membership/values.h",      "daemon/control/refusals.h"};

inline bool is_door(const std::string& include) {
  if (kDoors.contains(include)) return true;
  static const std::regex kDoor("^daemon/(?:base/[a-z_]+|([a-z]+)/\\1)\\.h$");
  return std::regex_match(include, kDoor);
}

// The doors to what the client's library links as well.
inline const std::set<std::string> kForClients = {
    "daemon/base/address.h",   "daemon/base/fd.h",        "daemon/base/framing.h",
    "daemon/base/hash.h",      "daemon/base/no_throw.h",  "daemon/base/program.h",
    "daemon/base/cpu_quota.h", "daemon/base/signature.h", "daemon/base/status.h",
    "daemon/base/strategy.h",  "daemon/kernel/kernel.h",  "daemon/board/board.h",
    "daemon/base/token.h",     "daemon/cuda/cuda.h",      "daemon/trace/trace.h"};
// What an operation does to two values, for the kernels of other processors.
constexpr std::string_view kArithmetic = "daemon/kernel/arithmetic.h";

// Second doors, for tests alone: the proof of schedules, the kernels of GPUs, and what a driver
// passes to them.
inline const std::set<std::string> kForTests = {
    "daemon/schedule/checker.h", "daemon/device/cuda_job.h", "daemon/device/cuda_reduce.cu"};

// Why `source` may not include the daemon's header, or "".
inline std::string refuse_daemon(const Source& source, const std::string& include) {
  const std::string from = room_of(source.path);
  const std::string to = room_of(include);
  if (to.empty()) return "no room has this header";
  if (from == to) return "";
  const bool test = source.under("tests/");
  if (kForClients.contains(include) && source.under("client/")) return "";
  if (!test && from.empty()) return "only the daemon and the tests include the daemon";
  if (include == kArithmetic) return from == "device" ? "" : "only a device computes";
  if (kForTests.contains(include)) return test ? "" : "this header is for tests";
  if (!is_door(include)) return "not the door of room " + to;
  if (!test && kFloors.at(to) >= kFloors.at(from)) return to + " is not below " + from;
  return "";
}

// Why `source` may not include this header of the client, or "": of the faces one knows no other,
// but the base through its door, and in its C ABI what all of these share.
inline std::string refuse_face(const Source& source, const std::string& include) {
  static const std::regex kFace("^client/faces/([a-z_]+)/");
  std::smatch match;
  if (source.under("tests/") || !std::regex_search(include, match, kFace)) return "";
  const std::string to = match[1];
  if (!std::regex_search(source.path, match, kFace)) return "only faces and tests include faces";
  const std::string from = match[1];
  if (from == to || (from == "average_gradients" && to == "cross_device")) return "";
  if (to == "base") return include == "client/faces/base/base.h" ? "" : "not the door of the base";
  const bool c_abi = to == "frameworks" && source.path.find("/c_api.") != std::string::npos;
  return c_abi ? "" : "a face includes no other face";
}

// The floors of the client's library. The C ABI is above them, its header below. A room includes
// itself and rooms of lower floors; nobody else includes any, but tests.
inline const std::map<std::string, int> kClientFloors = {
    {"rank", 1}, {"gpu", 2}, {"operations", 3}, {"messages", 4}};

// Why `source` may not include this header of the client, which is not of a face, or "".
inline std::string refuse_client(const Source& source, const std::string& include) {
  static const std::regex kRoom("^client/(?:([a-z_]+)/)?[^/]*$");
  std::smatch to, from;
  if (source.under("tests/")) return "";
  if (!std::regex_match(include, to, kRoom)) return "no room has this header";
  if (!to[1].matched)
    return source.under("client/") || source.under("daemon/bench/") ? "" : "only the bench uses it";
  if (!kClientFloors.contains(to[1])) return "no room has this header";
  if (!std::regex_match(source.path, from, kRoom) ||
      (from[1].matched && !kClientFloors.contains(from[1])))
    return "only the client's library includes it";
  const bool is_below =
      !from[1].matched || from[1] == to[1] || kClientFloors.at(to[1]) < kClientFloors.at(from[1]);
  return is_below ? "" : to[1].str() + " is not below " + from[1].str();
}

// Why `source` may not include this header of ours, or "".
inline std::string refuse_own(const Source& source, const std::string& include) {
  static const std::set<std::string> kPlainProto = {"proto/tutti_types.h", "proto/types.h",
                                                    "proto/segment.h", "proto/board.h",
                                                    "proto/recorder.h"};
  const bool client = source.under("client/");
  const bool test = source.under("tests/");
  if (include.starts_with("daemon/")) return refuse_daemon(source, include);
  if (include.starts_with("proto/"))
    return client && !kPlainProto.contains(include) ? "the client knows no protobuf" : "";
  if (include.starts_with("client/faces/")) return refuse_face(source, include);
  if (include.starts_with("client/")) return refuse_client(source, include);
  if (include.starts_with("tests/")) return test ? "" : "only tests include tests";
  return "not a path from the repository's root";
}

struct Home {
  std::string_view header;              // Begins with.
  std::vector<std::string_view> paths;  // Begin with; empty: nowhere.
};
inline const std::vector<Home> kHomes = {
    {"grpc",
     {"daemon/transport/", "daemon/control/", "tests/transport/", "tests/fuzz/transport_",
      "tests/control/", "tests/bench/"}},
    {"cuda", {"daemon/device/cuda_reduce.cu", "tests/cuda/"}},
    {"nvml", {"tests/nvml/"}},
    {"nccl.h", {"tests/nccl/"}},
    {"dlfcn.h", {"daemon/cuda/", "daemon/nvml/", "daemon/nccl/", "tests/"}},
    {"openssl/",
     {"daemon/transport/", "daemon/control/certificates.", "daemon/control/passes.cc",
      "tests/support/test_ca."}},
    {"spdlog/",
     {"daemon/group/", "daemon/control/", "daemon/agent/", "daemon/worker/", "daemon/base/log."}},
    {"CLI/", {"daemon/base/options.cc"}},
    {"microhttpd.h", {"daemon/http/server.cc"}},
    {"prometheus/", {"daemon/http/metrics.", "daemon/http/families."}},
    {"nlohmann/",
     {"client/faces/distribute/tf_config_resolver.cc", "client/faces/distribute/json_api.cc",
      "tests/distribute/", "tests/cross_device/"}},
    {"xxhash.h", {"client/operations/verification.cc"}},
    {"gtest/", {"tests/"}},
    {"gmock/", {"tests/"}},
    {"benchmark/", {"tests/"}},
    {"sys/mman.h",
     {"daemon/session/", "daemon/device/", "client/", "tests/session/", "tests/bench/",
      "tests/client/", "tests/process/", "tests/cuda/", "tests/nccl/", "tests/agent/trace"}},
    {"linux/memfd.h",
     {"daemon/session/", "daemon/device/", "client/", "tests/session/", "tests/cuda/"}},
    {"sys/un.h",
     {"daemon/base/address.", "tests/session/", "tests/process/load_test.",
      "tests/cli/private_agents_test."}},
    {"google/protobuf", {}},
};

inline std::string refuse_foreign(const Source& source, const std::string& include) {
  for (const Home& home : kHomes) {
    if (!include.starts_with(home.header)) continue;
    const auto here = [&](std::string_view path) { return source.under(path); };
    return std::ranges::any_of(home.paths, here) ? "" : "this is not the home of this header";
  }
  const bool library = include.find('/') != std::string::npos;
  return library && source.under("client/") && !include.starts_with("sys/") &&
                 !include.starts_with("linux/")
             ? "the client includes libc and proto/ alone"
             : "";
}

inline void check_includes(const Source& source, Findings& findings) {
  static const std::regex kInclude("^\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"]");
  for (size_t i = 0; source.is_cpp() && i < source.lines.size(); ++i) {
    std::smatch match;
    if (!std::regex_search(source.lines[i], match, kInclude)) continue;
    const std::string include = match[2];
    const std::string why =
        match[1] == "<" ? refuse_foreign(source, include) : refuse_own(source, include);
    if (!why.empty()) findings.push_back({source.path, i + 1, include + ": " + why});
  }
}

// A memfd has its home as its header would, had it one of its own.
inline void check_memfd(const Source& source, Findings& findings) {
  const bool home = source.under("daemon/session/") || source.under("daemon/device/") ||
                    source.under("client/") || source.under("tests/session/") ||
                    source.under("tests/cuda/") || source.under("tests/agent/trace");
  static const std::regex kCall("\\bmemfd_create\\(");
  if (!home) find_lines(source, kCall, "this is not the home of memfd", findings);
}

}  // namespace tutti::tidy
