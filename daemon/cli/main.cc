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

// The help's sections.
constexpr const char* kLook = "Look at jobs and nodes";
constexpr const char* kChange = "Change them";
constexpr const char* kMeasure = "Run and measure";
constexpr const char* kOther = "Other";

constexpr const char* kStrategies = "{centralized,tree:2,tree:4,ring,auto}";

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
    out += (out.empty() ? "" : ",") + std::string(name);
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

// What reads the output may be full, or gone.
int report_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  return tutti::report_status(tutti::errno_status("cannot write the output"));
}

Command add_run(Program& program, const CommandLine& line) {
  auto options = std::make_shared<RunOptions>();
  CommandOptions run =
      program.command("run", "Run `-- COMMAND` once per rank on a mesh of this machine", kMeasure);
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
  to.add("--op", options.collectives, "one or several, separated by commas; or all")
      .of_type("{" + collective_names() + ",all}")
      .separated_by(',')
      .shows_default();
  to.add("--min", options.bytes_min, "smallest size").shows_default();
  to.add("--max", options.bytes_max, "largest size").shows_default();
  to.add("--factor", options.factor, "from one size to the next")
      .within(2, 1 << 20)
      .shows_default();
  to.add("--dtype", options.dtype, "of the elements")
      .of_type("{f32,f64,f16,bf16,bool,i8,u8,i16,u16,i32,u32,i64,u64}")
      .shows_default();
  to.add("--redop", options.op, "how to reduce")
      .of_type("{sum,mean,min,max,prod,band,bor,bxor,premul_sum}")
      .shows_default();
  to.add("--strategy", options.strategies,
         "one or several, separated by commas; tree:K for any K; LOCAL+GLOBAL for a pair")
      .of_type(kStrategies)
      .separated_by(',')
      .shows_default();
  to.add("--iters", options.iterations, "timed operations a size; 0: half a second's worth")
      .shows_default();
  to.add("--warmup", options.warmup, "operations before those").shows_default();
  to.add("--device", options.device, "where the tensors are; cuda: the ranks take the GPUs in turn")
      .of_type("{host,cuda}")
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
  CommandOptions bench =
      program.command("bench", "Measure collectives, checking every result", kMeasure);
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
  CommandOptions status =
      program.command("status", "Show agents, jobs, ranks and what they did", kLook);
  const auto address = add_address(status);
  auto json = std::make_shared<bool>(false);
  status.add_flag("--json", *json, "one JSON object");
  status.footer(
      "Examples:\n  tutti status\n  tutti status --address node7:7601 --json | jq .agents");
  return [=] { return tutti::status_command({.address = *address, .json = *json}); };
}

Command add_trace(Program& program) {
  CommandOptions trace = program.command("trace", "Show what a job's ranks called last", kLook);
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
  CommandOptions plan =
      program.command("plan", "Predict a collective's time on more hosts", kMeasure);
  const auto address = add_address(plan);
  auto options = std::make_shared<tutti::PlanOptions>();
  plan.add("--op", options->collective, "what is called")
      .of_type("{" + collective_names() + "}")
      .shows_default();
  plan.add("--bytes", options->bytes, "of a rank's tensor, or block").shows_default();
  plan.add("--hosts", options->hosts, "one or more numbers; else 8 to 4096").separated_by(',');
  plan.add("--per-host", options->per_host, "ranks on each host").within(1, 1024).shows_default();
  plan.add("--link-us", options->link_us, "a message's latency").shows_default();
  plan.add("--link-gbps", options->link_gbps, "a link's bandwidth, Gbit/s").shows_default();
  plan.add("--cores", options->host.cores, "cores of each host, whatever this machine has")
      .within(1, 1024)
      .shows_default();
  plan.add("--streams", options->host.streams, "the setting data_streams; auto: by the cores")
      .of_type("{auto,1,2,4,8,16}")
      .shows_default();
  plan.add("--stream-gbps", options->host.stream_gbps,
           "what one thread moves into and out of sockets, Gbit/s")
      .shows_default();
  plan.add("--fold-gbps", options->host.fold_gbps,
           "what one core reads and writes while it folds, Gbit/s")
      .shows_default();
  plan.add("--memory-gbps", options->host.memory_gbps,
           "what all cores of a host read and write, Gbit/s")
      .shows_default();
  plan.add("--job", options->job, "take the links as this running job measured them");
  plan.add_flag("--json", options->json, "one JSON object");
  plan.footer(
      "Examples:\n  tutti plan --hosts 1024 --bytes 1G --per-host 8\n"
      "  tutti plan --hosts 128 --bytes 64M --per-host 8 --link-gbps 400 --cores 64 --streams 8\n"
      "  tutti plan --job demo --op all_gather --bytes 64M");
  return ask_one(address, options, tutti::plan_command);
}

Command add_strategy(Program& program) {
  CommandOptions strategy = program.command(
      "strategy", "Set a job's strategy, or show what auto measured and chooses", kChange);
  const auto address = add_address(strategy);
  auto options = std::make_shared<tutti::StrategyOptions>();
  strategy.add("JOB", options->job, "the job's name").required();
  strategy.add("STRATEGY", options->strategy, "to set; tree:K for any K; LOCAL,GLOBAL for a pair")
      .of_type(kStrategies);
  strategy.add_flag("--json", options->json, "without STRATEGY: one JSON object");
  strategy.footer(
      "Operations that name a strategy keep theirs.\n\nExamples:\n"
      "  tutti strategy demo ring,tree:2\n"
      "  tutti strategy demo");
  return ask_one(address, options, tutti::strategy_command);
}

Command add_explain(Program& program) {
  CommandOptions explain =
      program.command("explain", "Say in a sentence what is wrong with a job", kLook);
  const auto address = add_address(explain);
  auto options = std::make_shared<tutti::ExplainOptions>();
  explain.add("JOB", options->job, "the job's name; else all jobs and nodes");
  explain.add_flag("--json", options->json, "one JSON object");
  explain.footer(
      "The exit code is 0 where nothing is the matter, 1 where something is, 2 where there is no\n"
      "such job.\n\nExamples:\n  tutti explain\n  tutti explain demo");
  return [=] {
    options->address = *address;
    return tutti::explain_command(*options);
  };
}

Command add_jobs(Program& program) {
  CommandOptions jobs = program.command("jobs", "List jobs, and what is found of each", kLook);
  const auto address = add_address(jobs);
  auto options = std::make_shared<tutti::JobsOptions>();
  jobs.add_flag("--all", options->all, "also those that ended, with who or what ended them");
  jobs.add_flag("--json", options->json, "one JSON object");
  jobs.footer("Examples:\n  tutti jobs\n  tutti jobs --all");
  return [=] {
    options->address = *address;
    return tutti::jobs_command(*options);
  };
}

Command add_top(Program& program) {
  CommandOptions top =
      program.command("top", "Show jobs, ranks and their rates, every second", kLook);
  const auto address = add_address(top);
  auto options = std::make_shared<tutti::TopOptions>();
  top.add("JOB", options->job, "show the ranks of this job alone");
  top.add_flag("--once", options->once, "one table, of one second; so, too, without a terminal");
  top.footer(
      "On a terminal the key s sorts by another column, q and Control-C end it. Without\n"
      "colors where NO_COLOR is set.\n\nExamples:\n  tutti top\n  tutti top demo --once");
  return ask_one(address, options, tutti::top_command);
}

Command add_doctor(Program& program) {
  CommandOptions doctor =
      program.command("doctor", "Check this node, and say what to fix, and how", kLook);
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
  CommandOptions drain = program.command("drain", "Refuse new joins on an agent's node", kChange);
  const auto address = add_address(drain);
  auto options = std::make_shared<tutti::DrainOptions>();
  drain.add_flag("--undo", options->undo, "accept joins again");
  drain.add_flag("--wait", options->wait, "wait until the node has no job, and say for which");
  drain.add("--timeout", options->timeout, "of --wait, such as 10m; else as long as it takes");
  drain.footer("Examples:\n  tutti drain --wait --timeout 10m && apt-get upgrade tuttid");
  return [=] {
    options->address = *address;
    return tutti::drain_command(*options);
  };
}

Command add_stop(Program& program, const CommandLine& line) {
  CommandOptions stop =
      program.command("stop", "End a job on all nodes; or an agent, whose jobs go on", kChange);
  const auto address = add_address(stop);
  auto options = std::make_shared<tutti::StopOptions>();
  stop.add("JOB", options->job, "end the workers of this job, on all nodes; else the agent");
  stop.add_flag("--jobs", options->jobs, "without JOB: end the jobs' workers on its node, too");
  stop.footer("Users may end their own jobs.\n\nExamples:\n  tutti stop demo\n  tutti stop --jobs");
  const Command stop_job = ask_one(address, options, tutti::stop_command);
  return [=] {
    // A variable that is not set must not stop the agent.
    if (options->job.empty() && std::ranges::find(line.arguments, "") != line.arguments.end())
      return tutti::report_status(tutti::invalid_argument("JOB is empty"));
    if (!options->job.empty()) return stop_job();
    options->address = *address;
    return tutti::stop_command(*options);
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
int report_usage(const Program& program, const CommandLine& line, const Program::Read& read) {
  const std::string name = read.command.empty() ? "" : " " + read.command;
  const bool unknown =
      read.command.empty() && !line.arguments.empty() && !line.arguments.front().starts_with('-');
  const std::string what = unknown ? "there is no command '" + line.arguments.front() + "'" +
                                         program.suggest_command(line.arguments.front())
                                   : read.error;
  std::fprintf(stderr, "tutti: %s (see tutti%s --help)\n", what.c_str(), name.c_str());
  return tutti::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  tutti::block_launcher_signals();
  const CommandLine line = split_at_dashes(argc, argv);
  Program program("tutti", "tutti: collective communication through a daemon on every node",
                  version());
  // As the help lists them: what is needed most, first.
  std::vector<std::pair<std::string, Command>> commands = {
      {"status", add_status(program)},     {"top", add_top(program)},
      {"explain", add_explain(program)},   {"jobs", add_jobs(program)},
      {"doctor", add_doctor(program)},     {"trace", add_trace(program)},
      {"strategy", add_strategy(program)}, {"stop", add_stop(program, line)},
      {"drain", add_drain(program)},       {"run", add_run(program, line)},
      {"bench", add_bench(program, line)}, {"plan", add_plan(program)},
      {"version", print_version},
  };
  program.command("version", "Print the version", kOther);
  program.footer("Exit codes: 0 OK, 1 failure, 2 usage.");
  const bool is_bare = argc < 2;
  const Program::Read read =
      program.read(is_bare ? std::vector<std::string>{"--help"} : line.arguments);
  if (read.exit_code) return *read.exit_code;
  if (!read.error.empty()) return report_usage(program, line, read);
  const int code =
      std::ranges::find(commands, read.command, &std::pair<std::string, Command>::first)->second();
  return code == 0 ? report_output() : code;
}
