// An MPI: built once for each of those installed.
#include <mpi.h>

#include "tests/bench/drivers/race.h"

namespace tutti::race {
namespace {

class Mpi : public Contestant {
 public:
  Mpi(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size_);
  }
  ~Mpi() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  // Errors are fatal, by MPI's default.
  void run(Collective collective, float* in, float* out, size_t elements) override {
    const int count = static_cast<int>(elements);
    const MPI_Comm all = MPI_COMM_WORLD;
    switch (collective) {
      case Collective::all_reduce:
        MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_FLOAT, MPI_SUM, all);
        return;
      case Collective::reduce:
        MPI_Reduce(rank_ == kRoot ? MPI_IN_PLACE : in, out, count, MPI_FLOAT, MPI_SUM, kRoot, all);
        return;
      case Collective::broadcast:
        MPI_Bcast(out, count, MPI_FLOAT, kRoot, all);
        return;
      case Collective::all_gather:
        MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, all);
        return;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, all);
        return;
      case Collective::stream:
        fail("MPI is not measured so");
    }
  }

 private:
  int rank_ = 0;
  int world_size_ = 0;
};

}  // namespace
}  // namespace tutti::race

int main(int argc, char** argv) {
  tutti::race::Mpi mpi(&argc, &argv);
  const tutti::race::Arguments arguments(argc, argv);
  return run_race(mpi, arguments.options());
}
