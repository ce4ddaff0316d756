// What `tutti doctor` finds in views of nodes: each check where all is well, and where it is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "daemon/diagnosis/diagnosis.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr int64_t kDay = 86'400;

v1::AgentReport agent(const std::string& host) {
  v1::AgentReport report;
  report.set_host(host);
  report.set_address(host + ":7601");
  report.set_pid(11);
  report.set_state("serving");
  report.set_version("0.1.0");
  report.set_protocol(8);
  report.set_time_ms(1'000'050);
  return report;
}

// A node of two with nothing to fix.
NodeView healthy() {
  NodeView node;
  node.settings.listen = "10.0.0.2:7601";
  node.settings.coordinator = "a:7601";
  node.settings.tls = "require";
  node.settings.data_ports = "7610-7619";
  node.config = "/etc/tutti/tuttid.conf";
  node.config_exists = true;
  node.has_agent_token = true;
  node.version = "0.1.0";
  node.protocol = 8;
  node.hostname = "b";
  node.own = agent("b");
  node.own.set_coordinator_address("a:7601");
  node.own.set_coordinator_state("connected");
  *node.agents.add_agents() = agent("a");
  *node.agents.add_agents() = agent("b");
  node.asked_ms = 1'000'000;
  node.answered_ms = 1'000'100;
  node.agent_uid = 0;
  node.data_ports = 10;
  node.data_ports_taken = 2;
  node.congestion_available = "reno cubic";
  node.congestion_allowed = "reno cubic";
  node.paths = {{"a", "a:7601", "eth0", 1500, 1500, true}};
  node.limits = {11, true, UINT64_MAX, 16'384, uint64_t{8} << 30, uint64_t{1} << 30};
  node.available_bytes = uint64_t{16} << 30;
  node.kernel = "6.1.0";
  node.run_dir = {"/run/tutti", true, 0, 0755};
  node.socket_dir = {"/run/tutti", true, 0, 0755};
  node.certificates = CertificateView{"DNS b", true, 300 * kDay, 365 * kDay};
  node.now = 100 * kDay;
  node.nvml = unavailable("there is no libnvidia-ml.so.1");
  return node;
}

Check find(const std::vector<Check>& checks, const std::string& subject) {
  const auto found = std::ranges::find(checks, subject, &Check::subject);
  return found == checks.end() ? Check{} : *found;
}

TEST(DiagnosisNode, AHealthyNodeHasNothingToFix) {
  const std::vector<Check> checks = examine(healthy());
  EXPECT_EQ(checks.size(), 23u);
  for (const Check& check : checks) {
    EXPECT_EQ(check.grade, Grade::ok) << check.subject << ": " << check.finding;
    EXPECT_NE(check.finding, "") << check.subject;
    EXPECT_EQ(check.remedy, "") << check.subject;
  }
  EXPECT_FALSE(any_failed(checks));
}

// Instead of a coordinator.
void use_etcd(NodeView& node) {
  node.settings.coordinator = "";
  node.settings.etcd = "e1:2379,e2:2379,e3:2379";
  node.settings.etcd_tls_dir = "/etc/tutti/etcd";
  node.etcd.resize(3);
}

TEST(DiagnosisNode, ANodeWithEtcdAndMetricsHasNothingToFix) {
  NodeView node = healthy();
  use_etcd(node);
  node.settings.metrics_listen = "127.0.0.1:9464";
  node.own.set_metrics_address("127.0.0.1:9464");
  for (const Check& check : examine(node))
    EXPECT_EQ(check.grade, Grade::ok) << check.subject << ": " << check.finding;
}

struct Fault {
  std::string subject;
  Grade grade;
  std::string finding;  // Part of it,
  std::string remedy;   // and of this.
  std::function<void(NodeView&)> make;
};

v1::AgentReport& other(NodeView& node) { return *node.agents.mutable_agents(0); }

GpuInfo broken_gpu() {
  GpuInfo gpu;
  gpu.fault = "XID 79 (GPU has fallen off the bus)";
  return gpu;
}

const std::vector<Fault> kConfigurationFaults = {
    {"settings", Grade::fail, "tuttid.conf:3: expected: name = value", "fix that place",
     [](NodeView& n) {
       n.settings_read = invalid_argument("tuttid.conf:3: expected: name = value");
     }},
    {"tokens", Grade::fail, "no token for agents", "role=agent",
     [](NodeView& n) { n.has_agent_token = false; }},
    {"tokens", Grade::fail, "token:2: no role", "fix token_file",
     [](NodeView& n) { n.credentials_read = invalid_argument("token:2: no role"); }},
    {"tokens", Grade::warn, "Permission denied", "as root",
     [](NodeView& n) {
       n.uid = 1000;
       n.credentials_read = not_found("token cannot be read: Permission denied");
     }},
    {"tokens", Grade::warn, "is believed", "trust_network = no",
     [](NodeView& n) { n.settings.trust_network = "yes"; }},
    {"directories", Grade::fail, "belongs to user 1000", "chown root /run/tutti",
     [](NodeView& n) { n.run_dir.uid = 1000; }},
    {"directories", Grade::fail, "mode 0775", "chmod go-w /run/tutti",
     [](NodeView& n) { n.run_dir.mode = 0775; }},
    {"directories", Grade::fail, "anybody may replace the socket", "chmod o-w",
     [](NodeView& n) { n.socket_dir.mode = 0777; }},
    {"directories", Grade::warn, "cannot reach the socket", "chmod o+x",
     [](NodeView& n) { n.socket_dir.mode = 0750; }},
    {"directories", Grade::fail, "/run/tutti is full", "free space there",
     [](NodeView& n) { n.run_dir_space = resource_exhausted("/run/tutti is full"); }},
    {"directories", Grade::fail, "is on a read-only file system", "ReadWritePaths=",
     [](NodeView& n) {
       n.run_dir_space = permission_denied("/run/tutti is on a read-only file system");
     }},
    {"worker", Grade::fail, "there is no /usr/bin/tutti-worker: every join fails",
     "install tutti-worker",
     [](NodeView& n) { n.worker_binary = not_found("there is no /usr/bin/tutti-worker"); }},
    {"certificates", Grade::fail, "tls.key is missing", "docs/tls.md",
     [](NodeView& n) { n.certificates = not_found("tls.key is missing"); }},
    {"certificates", Grade::warn, "tls.key cannot be read", "as root",
     [](NodeView& n) {
       n.uid = 1000;
       n.certificates = not_found("tls.key cannot be read: Permission denied");
     }},
    {"certificates", Grade::fail, "names DNS c, not this host, b", "DNS name b",
     [](NodeView& n) {
       n.certificates = CertificateView{"DNS c", false, 300 * kDay, 365 * kDay};
     }},
    {"certificates", Grade::warn, "expires in 5 days", "renew it",
     [](NodeView& n) { n.now = 360 * kDay; }},
};

const std::vector<Fault> kMeshFaults = {
    {"agent", Grade::fail, "no agent at /run", "systemctl start tuttid",
     [](NodeView& n) { n.agent = unavailable("no agent at /run/tutti/tuttid.sock"); }},
    {"agent", Grade::fail, "this tool speaks protocol version 8, tuttid on host b version 9",
     "install the same release",
     [](NodeView& n) {
       n.agent = failed_precondition(
           "this tool speaks protocol version 8, tuttid on host b version 9; install the same "
           "release");
     }},
    {"agent", Grade::warn, "is draining", "tutti drain --undo",
     [](NodeView& n) { n.own.set_state("draining"); }},
    {"versions", Grade::warn, "tuttid is 0.0.9 on a", "restart tuttid",
     [](NodeView& n) { other(n).set_version("0.0.9"); }},
    {"versions", Grade::fail, "a speaks protocol version 9, this tool version 8", "one release",
     [](NodeView& n) { other(n).set_protocol(9); }},
    {"mesh", Grade::fail, "a (a:7601) was lost 20 s ago", "tutti doctor there",
     [](NodeView& n) {
       other(n).set_state("lost 20 s ago");
       other(n).set_lost(true);
     }},
    {"coordinator", Grade::fail, "the coordinator a:7601 refuses this agent: wrong token",
     "give both the same token_file",
     [](NodeView& n) {
       n.own.set_coordinator_state(
           "unreachable for 12 s: the coordinator a:7601 refuses this agent: wrong token; give "
           "both the same token_file");
     }},
    {"coordinator", Grade::fail, "nobody coordinates, so that no job can be joined",
     "see the check etcd",
     [](NodeView& n) {
       use_etcd(n);
       n.own.clear_coordinator_state();
       n.own.clear_coordinator_address();
       n.own.set_etcd_state("connected");
     }},
    {"etcd", Grade::fail, "unreachable for 47 s: no leader", "more than half of the members",
     [](NodeView& n) {
       use_etcd(n);
       n.own.set_etcd_state("unreachable for 47 s: no leader");
     }},
    {"mesh", Grade::fail, "the coordinator does not answer", "the coordinator runs",
     [](NodeView& n) { n.mesh = unavailable("the coordinator does not answer"); }},
    {"mesh", Grade::fail, "a (a:7601) is unreachable: timeout", "tutti doctor there",
     [](NodeView& n) { other(n).set_state("unreachable: timeout"); }},
    {"clocks", Grade::warn, "the clock of a is 900 ms ahead", "NTP",
     [](NodeView& n) { other(n).set_time_ms(n.answered_ms + 900); }},
    {"clocks", Grade::fail, "the clock of a is 61000 ms behind", "NTP",
     [](NodeView& n) { other(n).set_time_ms(n.asked_ms - 61'000); }},
    {"listen", Grade::fail, "from this machine alone", "0.0.0.0:7601",
     [](NodeView& n) { n.addresses = invalid_argument("reached from this machine alone"); }},
    {"listen", Grade::fail, "Address already in use", "ss -ltnp",
     [](NodeView& n) { n.listen = unavailable("cannot listen: Address already in use"); }},
    {"coordinator", Grade::fail, "Connection refused", "firewalls",
     [](NodeView& n) {
       n.own.clear_coordinator_state();
       n.coordinator = unavailable("a:7601: Connection refused");
     }},
    {"tokens", Grade::fail, "through etcd", "role=agent",
     [](NodeView& n) {
       use_etcd(n);
       n.has_agent_token = false;
     }},
    {"etcd", Grade::fail, "both set", "remove coordinator",
     [](NodeView& n) {
       use_etcd(n);
       n.settings.coordinator = "a:7601";
     }},
    {"etcd", Grade::warn, "e3:2379 is not reached", "start etcd there",
     [](NodeView& n) {
       use_etcd(n);
       n.etcd[2] = unavailable("e3:2379 is not reached: Connection refused");
     }},
    {"etcd", Grade::fail, "e1:2379 is not reached", "start etcd there",
     [](NodeView& n) {
       use_etcd(n);
       n.etcd[0] = n.etcd[1] = unavailable("e1:2379 is not reached: Connection refused");
     }},
    {"etcd", Grade::fail, "ca.crt cannot be read", "etcd_tls_dir",
     [](NodeView& n) {
       use_etcd(n);
       n.etcd_files = not_found("ca.crt cannot be read: No such file or directory");
     }},
    {"etcd", Grade::warn, "tls.key cannot be read", "as root",
     [](NodeView& n) {
       use_etcd(n);
       n.uid = 1000;
       n.etcd_files = not_found("tls.key cannot be read: Permission denied");
     }},
    {"etcd", Grade::fail, "there is no TLS", "etcd_tls_dir",
     [](NodeView& n) {
       use_etcd(n);
       n.settings.etcd_tls_dir = "";
       n.settings.tls = "off";
       n.certificates.reset();
     }},
    {"metrics", Grade::fail, "Address already in use", "metrics_listen",
     [](NodeView& n) {
       n.settings.metrics_listen = "10.0.0.2:9464";
       n.metrics = unavailable("cannot listen at 10.0.0.2:9464: Address already in use");
     }},
    {"metrics", Grade::fail, "open to every network", "token_file",
     [](NodeView& n) {
       n.settings.metrics_listen = "0.0.0.0:9464";
       n.metrics_wildcard = true;
       n.settings.tls = "off";
       n.certificates.reset();
     }},
    {"metrics", Grade::warn, "serves none", "restart tuttid",
     [](NodeView& n) { n.settings.metrics_listen = "127.0.0.1:9464"; }},
    {"data_ports", Grade::warn, "1 of 10", "more", [](NodeView& n) { n.data_ports_taken = 9; }},
    {"data_ports", Grade::fail, "0 of 10", "more", [](NodeView& n) { n.data_ports_taken = 10; }},
    {"congestion", Grade::warn, "the kernel lacks bbr", "modprobe tcp_bbr",
     [](NodeView& n) {
       n.settings.tcp_congestion = "bbr";
       n.congestion_available = "reno cubic";
     }},
    {"congestion", Grade::warn, "may not choose bbr", "=\"reno cubic bbr\"",
     [](NodeView& n) {
       n.settings.tcp_congestion = "bbr";
       n.congestion_available = "reno cubic bbr";
     }},
    {"mtu", Grade::warn, "may have 1400 bytes, but eth0 sends 1500", "same MTU",
     [](NodeView& n) { n.paths[0].path_mtu = 1400; }},
    {"mtu", Grade::fail, "no route to a", "ip route get a",
     [](NodeView& n) { n.paths[0].interface = ""; }},
};

const std::vector<Fault> kMachineFaults = {
    {"kernel", Grade::fail, "Linux 6.1.0 has no pidfd", "5.3",
     [](NodeView& n) { n.pidfd = unavailable("pidfd_open: Function not implemented"); }},
    {"shared_memory", Grade::fail, "cannot make", "memfd_create",
     [](NodeView& n) { n.sealed_memory = unavailable("cannot make shared memory"); }},
    {"memory", Grade::warn, "512 MiB of memory are left", "add memory",
     [](NodeView& n) { n.available_bytes = 512 << 20; }},
    {"memory", Grade::fail, "32 MiB of memory are left", "add memory",
     [](NodeView& n) { n.available_bytes = 32 << 20; }},
    {"memory", Grade::fail, "0 B of memory are left by the limit", "MemoryMax",
     [](NodeView& n) { n.limits.cgroup_bytes = uint64_t{9} << 30; }},
    {"overcommit", Grade::warn, "= 2", "sysctl", [](NodeView& n) { n.overcommit = 2; }},
    {"locked_memory", Grade::warn, "of tuttid (pid 11) is 8 MiB", "LimitMEMLOCK",
     [](NodeView& n) {
       n.gpus.emplace_back();
       n.nvml = {};
       n.limits.locked_bytes = 8 << 20;
     }},
    {"descriptors", Grade::warn, "is 1024", "LimitNOFILE",
     [](NodeView& n) { n.limits.descriptors = 1024; }},
    {"descriptors", Grade::fail, "this process (no agent runs) is 100", "ulimit -n",
     [](NodeView& n) { n.limits = {.pid = 0, .of_agent = false, .descriptors = 100}; }},
    {"gpus", Grade::fail, "there is no libnvidia-ml", "install libnvidia-ml",
     [](NodeView& n) { n.has_nvidia_driver = true; }},
    {"gpus", Grade::fail, "GPU 0 failed: XID 79", "--gpu-reset",
     [](NodeView& n) {
       n.nvml = {};
       n.gpus = {broken_gpu()};
     }},
    {"gpus", Grade::fail, "GPU 3 failed: XID 48", "--gpu-reset",
     [](NodeView& n) {
       v1::Gpu& gpu = *n.own.add_gpus();
       gpu.set_index(3);
       gpu.set_failed(true);
       gpu.set_state("failed: XID 48");
     }},
};

void expect_found(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    NodeView node = healthy();
    fault.make(node);
    const std::vector<Check> checks = examine(node);
    const Check found = find(checks, fault.subject);
    EXPECT_EQ(found.grade, fault.grade) << fault.subject << ": " << found.finding;
    EXPECT_THAT(found.finding, HasSubstr(fault.finding));
    EXPECT_THAT(found.remedy, HasSubstr(fault.remedy));
    EXPECT_EQ(any_failed(checks), fault.grade == Grade::fail) << fault.subject;
  }
}

TEST(DiagnosisNode, FindsFaultsOfTheConfiguration) { expect_found(kConfigurationFaults); }
TEST(DiagnosisNode, FindsFaultsOfTheMeshAndTheNetwork) { expect_found(kMeshFaults); }
TEST(DiagnosisNode, FindsFaultsOfTheMachine) { expect_found(kMachineFaults); }

// Debian's kernel lets users choose what its own default is, and nothing else.
TEST(DiagnosisNode, TheDefaultCongestionControlIsNoFault) {
  NodeView node = healthy();
  node.congestion_available = node.congestion_allowed = "reno bbr";
  const Check found = find(examine(node), "congestion");
  EXPECT_EQ(found.grade, Grade::ok);
  EXPECT_THAT(found.finding, HasSubstr("it allows them only reno bbr"));
}

// One cause is one failure.
TEST(DiagnosisNode, AMeshThatIsNotJoinedIsNotJudged) {
  NodeView node = healthy();
  node.own.set_coordinator_state("unreachable for 12 s: wrong token; give both the same token");
  other(node).set_state("unreachable: wrong token");
  const Check found = find(examine(node), "mesh");
  EXPECT_EQ(found.grade, Grade::warn);
  EXPECT_THAT(found.remedy, HasSubstr("the check coordinator"));
}

TEST(DiagnosisNode, AHostWhoseNameIsNotKnownHasItsAddress) {
  NodeView node = healthy();
  other(node).clear_host();
  other(node).set_address("10.0.0.1:7601");
  other(node).set_state("refuses this agent: wrong token; give both the same token_file");
  node.paths = {{"", "10.0.0.1:7601", "", 0, 0, false}};
  EXPECT_EQ(find(examine(node), "mesh").finding,
            "10.0.0.1:7601 refuses this agent: wrong token; give both the same token_file");
  EXPECT_EQ(find(examine(node), "mtu").finding, "there is no route to 10.0.0.1:7601");
}

TEST(DiagnosisNode, ACoordinatorAloneByAnotherHostsNameIsSaidAndHealthy) {
  NodeView node = healthy();
  node.own.set_coordinator(true);
  node.own.clear_coordinator_state();
  node.own.set_coordinator_setting("head:7601");
  node.agents.clear_agents();
  *node.agents.add_agents() = node.own;
  const Check found = find(examine(node), "coordinator");
  EXPECT_EQ(found.grade, Grade::ok) << "head may be an alias of this node";
  EXPECT_EQ(found.finding,
            "this node's agent coordinates itself, as head:7601 leads to it, and no other agent is "
            "registered there");
}

TEST(DiagnosisNode, WhereNoOtherAgentIsThereIsNothingToCompare) {
  NodeView node = healthy();
  node.agents.mutable_agents()->DeleteSubrange(0, 1);
  EXPECT_EQ(find(examine(node), "mesh").finding, "this node's agent is the only one");
  EXPECT_EQ(find(examine(node), "clocks").finding, "there is no other agent's to compare");
}

TEST(DiagnosisNode, ALoneNodeWithDefaultsIsHealthy) {
  NodeView node = healthy();
  node.settings = {};
  node.config_exists = false;
  node.has_agent_token = false;
  node.certificates.reset();
  node.agents.mutable_agents()->DeleteSubrange(0, 1);
  node.paths.clear();
  node.data_ports = node.data_ports_taken = 0;
  for (const Check& check : examine(node))
    EXPECT_EQ(check.grade, Grade::ok) << check.subject << ": " << check.finding;
}

TEST(DoctorReport, ForPeopleRemediesAreBelow) {
  EXPECT_EQ(doctor_text({{"kernel", Grade::ok, "Linux 6.1.0", ""},
                         {"memory", Grade::fail, "none\x1b is left", "add memory"}}),
            "OK    kernel         Linux 6.1.0\n"
            "FAIL  memory         none? is left\n"
            "                     -> add memory\n");
}

TEST(DoctorReport, ForPrograms) {
  EXPECT_EQ(
      doctor_json({{"memory", Grade::warn, "little", "add"}}),
      R"({"checks":[{"subject":"memory","grade":"WARN","finding":"little","remedy":"add"}]})");
}

}  // namespace
}  // namespace tutti
