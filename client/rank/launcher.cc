#include "client/rank/launcher.h"

#include <array>

#include "daemon/base/program.h"

namespace tutti::client {
namespace {

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

// Without --rdzv-id every run is called "none"; then it is known by where its ranks meet. A
// loopback address is another one on each node: it names a job only if all ranks are on one.
std::string torchrun_job() {
  const std::string id = variable("TORCHELASTIC_RUN_ID");
  if (!id.empty() && id != "none") return "torchrun-" + id;
  std::string address = variable("MASTER_ADDR");
  const std::string port = variable("MASTER_PORT");
  if (address.empty() || port.empty()) return {};
  if (is_loopback(address)) {
    if (variable("LOCAL_WORLD_SIZE") != variable("WORLD_SIZE")) return {};
    address = hostname();
  }
  return "torchrun-" + address + ":" + port;
}

std::string open_mpi_job() {
  std::string id = variable("PMIX_NAMESPACE");
  if (id.empty()) id = variable("OMPI_MCA_ess_base_jobid");
  return id.empty() ? "" : "mpi-" + id;
}

std::string pmi_job() {
  const std::string id = variable("PMI_JOBID");
  return id.empty() ? "" : "pmi-" + id;
}

// A batch script has no step, and runs once whatever the number of tasks.
std::string slurm_job() {
  const std::string job = variable("SLURM_JOB_ID");
  const std::string step = variable("SLURM_STEP_ID");
  return job.empty() || step.empty() ? "" : "slurm-" + job + "." + step;
}

std::string no_job() { return {}; }

// RANK and WORLD_SIZE could be anybody's; torchrun, and what imitates it, also say where to meet.
bool is_torchrun() { return find_variable("TORCHELASTIC_RUN_ID") || find_variable("MASTER_ADDR"); }
bool always() { return true; }

struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* also;    // What else must be set, for messages.
  bool (*is_there)();  // Where rank and world size are set.
  std::string (*job)();
  const char* how_to_name;
};

constexpr const char* kOurs = "TUTTI_*";
constexpr std::array<Launcher, 5> kLaunchers = {{
    {kOurs, "TUTTI_RANK", "TUTTI_WORLD_SIZE", "", always, no_job, ""},
    {"torchrun", "RANK", "WORLD_SIZE", " with TORCHELASTIC_RUN_ID or MASTER_ADDR", is_torchrun,
     torchrun_job, "torchrun --rdzv-id=NAME"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "", always, open_mpi_job,
     "mpirun -x TUTTI_JOB=NAME"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "", always, pmi_job, "mpiexec -genv TUTTI_JOB NAME"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "", always, slurm_job,
     "srun --export=ALL,TUTTI_JOB=NAME"},
}};

}  // namespace

std::optional<Launch> find_launch() {
  for (const Launcher& one : kLaunchers) {
    const std::optional<std::string> rank = find_variable(one.rank);
    const std::optional<std::string> world_size = find_variable(one.world_size);
    const bool whole = rank && world_size && one.is_there();
    if (whole || (one.name == kOurs && (rank || world_size)))
      return Launch{one.name,   one.rank,  one.world_size, rank,
                    world_size, one.job(), one.how_to_name};
  }
  return std::nullopt;
}

std::string describe_launchers() {
  std::string all;
  std::string set;
  for (const Launcher& one : kLaunchers) {
    all += (all.empty() ? "" : ", ") + std::string(one.rank) + " and " + one.world_size + one.also +
           " (" + one.name + ")";
    for (const char* name : {one.rank, one.world_size})
      if (find_variable(name)) set += (set.empty() ? "" : ", ") + std::string(name);
  }
  return all + "; of these " + (set.empty() ? "none is set" : "only " + set + " is set");
}

}  // namespace tutti::client
