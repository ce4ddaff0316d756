// The command line of `tutti`: reads options and calls the commands of cli.h.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "daemon/base/options.h"
#include "daemon/base/settings.h"
#include "daemon/cli/cli.h"
#include "daemon/cli/private_agents.h"
#include "daemon/control/admin_client.h"
#include "daemon/launch/launch.h"
#include "proto/segment.h"

namespace {

using tutti::BenchOptions;
using tutti::CommandOptions;
using tutti::Program;
using tutti::RunOptions;

using Command = std::function<int()>;

struct CommandLine {
  std::vector<std::string> arguments;  // Without the program's name, up to "--".
  std::vector<std::string> command;    // Behind "--", for `run`.
};

CommandLine split_at_dashes(int argc, char** argv) {
  CommandLine line;
  line.arguments.assign(argv + 1, argv + argc);
  const auto dashes = std::ranges::find(line.arguments, "--");
  if (dashes != line.arguments.end()) line.command.assign(dashes + 1, line.arguments.end());
  line.arguments.erase(dashes, line.arguments.end());
  return line;
}

std::string collective_names() {
  std::string out;
  for (const std::string_view name : tutti::kCollectiveNames)
    out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

void add_mesh_options(CommandOptions& to, RunOptions& options) {
  to.add("--hosts", options.hosts, "hosts of the mesh, all on this machine")
      .within(1, 250)
      .shows_default();
  to.add("--per-host", options.per_host, "ranks on each host: 2, or one number a host: 3,1")
      .shows_default();
  to.add_flag("--netns", options.netns,
              "give each host a network namespace and address of its own (root)");
  to.add("--rate", options.rate,
         "limit each host's link in both directions, such as 1gbit; needs --netns");
  to.add("--log-dir", options.log_dir, "keep the daemons' logs there; else shown after a failure");
  to.add("--gpus", options.gpus,
         "GPUs of this machine for each rank, in order of rank; auto divides them evenly");
}

Command add_run(Program& program, const CommandLine& line) {
  auto options = std::make_shared<RunOptions>();
  CommandOptions run =
      program.command("run", "Run `-- COMMAND` once per rank on a mesh of this machine");
  add_mesh_options(run, *options);
  run.add_flag("--keep-going", options->keep_going,
               "when a rank fails do not end the others (else: 2 s, SIGTERM, 2 s, SIGKILL)");
  run.add("--job", options->job, "the job's name").shows_default();
  run.add_flag("--label", options->label,
               "put \"[rank] \" before each line, not only before those of standard error");
  run.footer(
      "Each rank finds in its environment:\n"
      "  TUTTI_RANK, TUTTI_WORLD_SIZE, TUTTI_JOB         all that tutti.join() needs\n"
      "  TUTTI_SOCKET, TUTTI_HOST, TUTTI_ADDRESS         the agent of its host\n"
      "  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE  its place, as torchrun sets it\n"
      "  MASTER_ADDR, MASTER_PORT                        a free port of rank 0's host\n"
      "  CUDA_VISIBLE_DEVICES                            with --gpus: its GPUs, of those that the\n"
      "                                                  caller's names, else of all\n\n"
      "The exit code is that of the rank that failed first in the job, whichever process ended\n"
      "first (128 + signal if it was killed).\n\n"
      "Examples:\n"
      "  tutti run --hosts 2 --per-host 2 -- python3 train.py --epochs 3\n"
      "  tutti run --hosts 2 --per-host 3,1 --label -- ./trainer\n"
      "  tutti run --per-host 8 --gpus 1 -- python3 train.py\n"
      "  sudo tutti run --hosts 4 --netns --rate 1gbit -- python3 train.py");
  return [options, command = line.command] {
    options->command = command;
    return tutti::run_command(*options);
  };
}

void add_bench_options(CommandOptions& to, BenchOptions& options) {
  to.add("--op", options.collectives, "any of " + collective_names() + ", or all")
      .separated_by(',')
      .shows_default();
  to.add("--min", options.bytes_min, "smallest size").shows_default();
  to.add("--max", options.bytes_max, "largest size").shows_default();
  to.add("--factor", options.factor, "from one size to the next")
      .within(2, 1 << 20)
      .shows_default();
  to.add("--dtype", options.dtype,
         "f32, f64, f16, bf16, bool, i8, u8, i16, u16, i32, u32, i64 or u64")
      .shows_default();
  to.add("--redop", options.op, "sum, mean, min, max, prod, band, bor, bxor or premul_sum")
      .shows_default();
  to.add("--strategy", options.strategies,
         "any of centralized, tree:K, ring, auto; LOCAL+GLOBAL for a pair")
      .separated_by(',')
      .shows_default();
  to.add("--iters", options.iterations, "timed operations a size; 0: half a second's worth")
      .shows_default();
  to.add("--warmup", options.warmup, "operations before those").shows_default();
  to.add("--device", options.device,
         "where the tensors are: host, or cuda: the ranks take the GPUs in turn")
      .shows_default();
  to.add_flag("--zero-copy,!--staged", options.zero_copy,
              "tensors in the daemon's shared memory (default), or ordinary ones");
  to.add_flag("--json", options.json, "one JSON object a line");
  to.add_flag("--compare", options.compare,
              "run the strategies in turn, round by round; the first's time over the others' best");
}

Command add_bench(Program& program, const CommandLine& line) {
  auto options = std::make_shared<BenchOptions>();
  auto mesh = std::make_shared<RunOptions>();
  mesh->per_host = "2";
  CommandOptions bench = program.command("bench", "Measure collectives, checking every result");
  add_mesh_options(bench, *mesh);
  add_bench_options(bench, *options);
  bench.footer(
      "Columns as in nccl-tests: time is the median over iterations of the slowest rank's,\n"
      "algbw = size / time, busbw = algbw x the collective's share of the bus. On GPUs also:\n"
      "copy, what they read and write when they only copy the tensor once a rank, and of copy,\n"
      "that copy's time over the collective's.\n"
      "Inside `tutti run` or with TUTTI_RANK set it is one rank of that job.\n\n"
      "Examples:\n"
      "  tutti bench --hosts 2 --per-host 2 --strategy ring,tree:2,centralized\n"
      "  tutti bench --per-host 4 --op all --min 1M --max 1M --json\n"
      "  tutti bench --hosts 4 --per-host 1 --compare --strategy auto,centralized,tree:2,ring\n"
      "  tutti bench --per-host 4 --device cuda --min 1M --max 256M\n"
      "  sudo tutti bench --hosts 4 --per-host 1 --netns --rate 10gbit");
  return [=] { return tutti::bench_command(*options, *mesh, line.arguments); };
}

std::shared_ptr<std::string> add_address(CommandOptions& to) {
  auto address = std::make_shared<std::string>(tutti::default_address());
  to.add("--address", *address,
         "an agent's Unix socket, unix:PATH, or control plane, host:port (TUTTI_ADDRESS)")
      .shows_default();
  return address;
}

// A command that asks one agent: the private one, if there is one and no other.
template <typename Options>
Command ask_one(std::shared_ptr<std::string> address, std::shared_ptr<Options> options,
                int (*command)(const Options&)) {
  return [=] {
    tutti::Result<std::string> found = tutti::agent_to_ask(*address);
    if (!found.ok()) return tutti::report_status(found.status());
    options->address = *std::move(found);
    return command(*options);
  };
}

Command add_status(Program& program) {
  CommandOptions status = program.command("status", "Show agents, jobs, ranks and what they did");
  const auto address = add_address(status);
  auto json = std::make_shared<bool>(false);
  status.add_flag("--json", *json, "one JSON object");
  status.footer(
      "Examples:\n  tutti status\n  tutti status --address node7:7601 --json | jq .agents");
  return [=] { return tutti::status_command({.address = *address, .json = *json}); };
}

Command add_trace(Program& program) {
  CommandOptions trace = program.command("trace", "Show what a job's ranks called last");
  const auto address = add_address(trace);
  auto options = std::make_shared<tutti::TraceOptions>();
  trace.add("JOB", options->job, "the job's name; it may have ended").required();
  trace.add("--last", options->last, "operations to show; 0: all that are kept")
      .within(0, 1'000'000);
  trace.add_flag("--json", options->json, "one JSON object");
  trace.add("--chrome", options->chrome, "write trace events for Perfetto to this file");
  trace.add("--torch", options->torch,
            "write a dump of each rank for torchfrtrace to this directory");
  trace.footer(
      "Without --last a table has 50 operations, other outputs have all that are kept.\n\n"
      "Examples:\n  tutti trace demo\n  tutti trace demo --chrome demo.json");
  return ask_one(address, options, tutti::trace_command);
}

Command add_plan(Program& program) {
  CommandOptions plan = program.command("plan", "Predict a collective's time on more hosts");
  const auto address = add_address(plan);
  auto options = std::make_shared<tutti::PlanOptions>();
  plan.add("--op", options->collective, "one of " + collective_names()).shows_default();
  plan.add("--bytes", options->bytes, "of a rank's tensor, or block").shows_default();
  plan.add("--hosts", options->hosts, "one or more numbers; else 8 to 4096").separated_by(',');
  plan.add("--per-host", options->per_host, "ranks on each host").within(1, 1024).shows_default();
  plan.add("--link-us", options->link_us, "a message's latency").shows_default();
  plan.add("--link-gbps", options->link_gbps, "a link's bandwidth, Gbit/s").shows_default();
  plan.add("--job", options->job, "take the links as this running job measured them");
  plan.add_flag("--json", options->json, "one JSON object");
  plan.footer(
      "Examples:\n  tutti plan --hosts 1024 --bytes 1G --per-host 8\n"
      "  tutti plan --job demo --op all_gather --bytes 64M");
  return ask_one(address, options, tutti::plan_command);
}

Command add_strategy(Program& program) {
  CommandOptions strategy =
      program.command("strategy", "Set a job's strategy, or show what auto measured and chooses");
  const auto address = add_address(strategy);
  auto options = std::make_shared<tutti::StrategyOptions>();
  strategy.add("JOB", options->job, "the job's name").required();
  strategy.add("STRATEGY", options->strategy,
               "to set: centralized, tree:K, ring or auto; LOCAL,GLOBAL for a pair");
  strategy.add_flag("--json", options->json, "without STRATEGY: one JSON object");
  strategy.footer(
      "Operations that name a strategy keep theirs.\n\nExamples:\n"
      "  tutti strategy demo ring,tree:2\n"
      "  tutti strategy demo");
  return ask_one(address, options, tutti::strategy_command);
}

Command add_explain(Program& program) {
  CommandOptions explain = program.command("explain", "Say in a sentence what is wrong with a job");
  const auto address = add_address(explain);
  auto options = std::make_shared<tutti::ExplainOptions>();
  explain.add("JOB", options->job, "the job's name; else all jobs of the agent");
  explain.add_flag("--json", options->json, "one JSON object");
  explain.footer(
      "The exit code is 0 where nothing is the matter, 1 where something is, 2 where there is no\n"
      "such job.\n\nExamples:\n  tutti explain\n  tutti explain demo");
  return [=] {
    options->address = *address;
    return tutti::explain_command(*options);
  };
}

Command add_top(Program& program) {
  CommandOptions top = program.command("top", "Show jobs, ranks and their rates, every second");
  const auto address = add_address(top);
  auto options = std::make_shared<tutti::TopOptions>();
  top.add("JOB", options->job, "show the ranks of this job alone");
  top.add_flag("--once", options->once, "one table, of one second; so, too, without a terminal");
  top.footer("Control-C ends it.\n\nExamples:\n  tutti top\n  tutti top demo --once");
  return ask_one(address, options, tutti::top_command);
}

Command add_doctor(Program& program) {
  CommandOptions doctor =
      program.command("doctor", "Check this node, and say what to fix, and how");
  auto flags = std::make_shared<tutti::DoctorFlags>();
  doctor.add("--address", flags->address,
             "the agent's Unix socket, unix:PATH; else that of the settings");
  doctor.add("--config", flags->config, "tuttid's settings file");
  doctor.add_flag("--json", flags->json, "one JSON object");
  for (const tutti::SettingRow& row : tutti::setting_rows()) {
    const auto store = [flags, name = std::string(row.name)](const std::string& text) {
      flags->values[name] = text;
    };
    doctor.add_call(tutti::flag_of(row), store, std::string(row.help))
        .in_group(row.name == "coordinator" ? "Options" : "");
  }
  doctor.footer(
      "Reads settings as tuttid does, and takes all of its flags. The exit code is 1 where a "
      "check\n"
      "FAILs.\n\nExamples:\n  sudo tutti doctor\n  tutti doctor --coordinator node7:7601");
  return [=] { return tutti::doctor_command(*flags); };
}

Command add_drain(Program& program) {
  CommandOptions drain = program.command("drain", "Refuse new joins on an agent's node");
  const auto address = add_address(drain);
  auto undo = std::make_shared<bool>(false);
  drain.add_flag("--undo", *undo, "accept joins again");
  return [=] {
    return tutti::report_status(tutti::admin_drain(*address, *undo, tutti::kCallTimeoutMs));
  };
}

Command add_stop(Program& program) {
  CommandOptions stop = program.command("stop", "Stop an agent; its running jobs go on");
  const auto address = add_address(stop);
  auto jobs = std::make_shared<bool>(false);
  stop.add_flag("--jobs", *jobs, "end the jobs' workers on its node, too");
  return [=] {
    return tutti::report_status(tutti::admin_stop(*address, *jobs, tutti::kCallTimeoutMs));
  };
}

std::string version() {
  return "tutti " TUTTI_VERSION " (protocol " + std::to_string(tutti::kProtocolVersion) + ")";
}

int print_version() {
  std::puts(version().c_str());
  return 0;
}

// Prints one line that points to the help.
int report_usage(const CommandLine& line, const tutti::Program::Read& read) {
  const std::string name = read.command.empty() ? "" : " " + read.command;
  const bool unknown =
      read.command.empty() && !line.arguments.empty() && !line.arguments.front().starts_with('-');
  const std::string what =
      unknown ? "there is no command '" + line.arguments.front() + "'" : read.error;
  std::fprintf(stderr, "tutti: %s (see tutti%s --help)\n", what.c_str(), name.c_str());
  return tutti::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  tutti::block_launcher_signals();
  const CommandLine line = split_at_dashes(argc, argv);
  Program program("tutti", "tutti: collective communication through a daemon on every node",
                  version());
  std::vector<std::pair<std::string, Command>> commands = {
      {"run", add_run(program, line)}, {"bench", add_bench(program, line)},
      {"status", add_status(program)}, {"strategy", add_strategy(program)},
      {"drain", add_drain(program)},   {"stop", add_stop(program)},
      {"plan", add_plan(program)},     {"top", add_top(program)},
      {"doctor", add_doctor(program)}, {"explain", add_explain(program)},
      {"trace", add_trace(program)},   {"version", print_version},
  };
  program.command("version", "Print the version");
  program.footer("Exit codes: 0 OK, 1 failure, 2 usage.");
  const Program::Read read = program.read(line.arguments);
  if (read.exit_code) return *read.exit_code;
  if (!read.error.empty()) return report_usage(line, read);
  return std::ranges::find(commands, read.command, &std::pair<std::string, Command>::first)
      ->second();
}
