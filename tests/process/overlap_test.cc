// Calls that name one memory twice: in place is right; else they are refused, naming the buffers,
// in each kind of memory, of each size, in calls that block and that do not, within a host and
// between hosts.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/process/board_fixture.h"

namespace tutti {
namespace {

using namespace testing;

// Below and above what is copied as a whole.
constexpr size_t kCounts[] = {1000, 300'000};
constexpr Way kUniformWays[] = {Way::blocking, Way::async, Way::passing};

// What a call is made with.
struct Place {
  size_t count = 0;
  bool shared = false;
  Way way = Way::blocking;
  std::string text() const {
    return std::to_string(count) + (shared ? " shared" : " ordinary") + " way " +
           std::to_string(static_cast<int>(way)) + ": ";
  }
};

// Runs a call of the C ABI as the way says; returns its outcome, or that of its work.
template <class Call>
tutti_code outcome_of(Way way, const Call& call) {
  tutti_options options = tutti_defaults();
  options.buffers_stay = way == Way::passing ? 1 : 0;
  tutti_work* work = nullptr;
  tutti_code code = call(&options, way == Way::blocking ? nullptr : &work);
  if (code == TUTTI_OK && work != nullptr) code = tutti_work_wait(work, -1);
  tutti_work_free(work);
  return code;
}

// The same memory for several tensors, whose elements are their index + the rank.
class Floats {
 public:
  Floats(Group& group, size_t count, bool shared)
      : memory_(group, count * sizeof(float), shared), count_(count), rank_(group.rank()) {
    fill();
  }
  void fill() {
    for (size_t i = 0; i < count_; ++i) data()[i] = own(i);
  }
  float* data() { return reinterpret_cast<float*>(memory_.data()); }
  float own(size_t i) const { return static_cast<float>(i % 1009) + static_cast<float>(rank_); }
  void check_unchanged(const std::string& what) {
    for (size_t i = 0; i < count_; ++i)
      check(data()[i] == own(i), what + ": element " + std::to_string(i) + " changed");
  }

 private:
  Tensor memory_;
  const size_t count_;
  const int rank_;
};

float sum_of(const Group& group, size_t i) {
  const int n = group.world_size();
  return static_cast<float>(n) * static_cast<float>(i % 1009) + static_cast<float>(n * (n - 1) / 2);
}

void check_refused(tutti_code code, const std::string& words, const std::string& what) {
  const std::string message = tutti_last_error()->message;
  check(code == TUTTI_INVALID_ARGUMENT, what + "code " + std::to_string(code));
  check(message.find(words) != std::string::npos, what + message);
}

// Each tensor by where its input and its output begin, in elements, and its count.
struct Listed {
  size_t in;
  size_t out;
  size_t count;
};

tutti_code reduce_list(Group& group, float* base, Way way, const std::vector<Listed>& list) {
  std::vector<const void*> ins;
  std::vector<void*> outs;
  std::vector<size_t> counts;
  for (const Listed& tensor : list) {
    ins.push_back(base + tensor.in);
    outs.push_back(base + tensor.out);
    counts.push_back(tensor.count);
  }
  return outcome_of(way, [&](const tutti_options* options, tutti_work** work) {
    return tutti_all_reduce_many(group.get(), ins.data(), outs.data(), counts.data(), list.size(),
                                 TUTTI_F32, TUTTI_SUM, options, work);
  });
}

void each_place(Group& group, size_t parts,
                const std::function<void(const Place&, Floats&)>& body) {
  for (const size_t count : kCounts)
    for (const bool shared : {false, true}) {
      Floats memory(group, parts * count, shared);
      for (const Way way : kUniformWays) {
        memory.fill();
        body({count, shared, way}, memory);
      }
    }
}

class OverlapMesh : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  std::string run(const Trainer::Body& body) const { return mesh_.run("job", GetParam(), body); }
  TestMesh mesh_{2};
};
INSTANTIATE_TEST_SUITE_P(Layouts, OverlapMesh,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{1, 1}));

TEST_P(OverlapMesh, SidesThatOverlapInPartAreRefused) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              each_place(group, 3, [&](const Place& at, Floats& memory) {
                const size_t n = at.count;
                float* x = memory.data();
                for (const size_t off : {size_t{1}, size_t{16}, n / 2, n - 1})
                  for (const bool ahead : {false, true}) {
                    float *in = ahead ? x : x + off, *out = ahead ? x + off : x;
                    const std::string what = at.text() + "by " + std::to_string(off);
                    const auto reduce = [&](const tutti_options* options, tutti_work** work) {
                      return tutti_all_reduce(group.get(), in, out, n, TUTTI_F32, TUTTI_SUM,
                                              options, work);
                    };
                    check_refused(outcome_of(at.way, reduce), "all_reduce overlap in part", what);
                    const auto to_all = [&](const tutti_options* options, tutti_work** work) {
                      return tutti_reduce(group.get(), in, out, n, TUTTI_F32, TUTTI_SUM,
                                          group.rank(), options, work);
                    };
                    if (group.world_size() == 1)
                      check_refused(outcome_of(at.way, to_all), "reduce overlap in part", what);
                  }
                memory.check_unchanged(at.text());
              });
              check_works(group);
            }),
            "");
}

// In place is the own block among those of the other side, and nothing else.
TEST_P(OverlapMesh, SidesWithBlocksThatOverlapInPartAreRefused) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const auto ranks = static_cast<size_t>(group.world_size());
              each_place(group, 4, [&](const Place& at, Floats& memory) {
                const size_t n = at.count, own = static_cast<size_t>(group.rank()) * n;
                float* x = memory.data();
                for (const size_t begin : {own + 1, own + n - 1, (own + n) % (ranks * n)}) {
                  if (begin == own || begin >= ranks * n) continue;
                  const auto gather = [&](const tutti_options* options, tutti_work** work) {
                    return tutti_all_gather(group.get(), x + begin, x, n, TUTTI_F32, options, work);
                  };
                  check_refused(outcome_of(at.way, gather), "all_gather overlap in part",
                                at.text());
                  const auto scatter = [&](const tutti_options* options, tutti_work** work) {
                    return tutti_reduce_scatter(group.get(), x, x + begin, n, TUTTI_F32, TUTTI_SUM,
                                                options, work);
                  };
                  check_refused(outcome_of(at.way, scatter), "reduce_scatter overlap", at.text());
                }
                memory.check_unchanged(at.text());
              });
              check_works(group);
            }),
            "");
}

TEST_P(OverlapMesh, ListsWhoseTensorsOverlapAreRefused) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        Group group = context.join();
        each_place(group, 4, [&](const Place& at, Floats& memory) {
          const size_t n = at.count;
          const auto refused = [&](const std::string& words, const std::vector<Listed>& list) {
            check_refused(reduce_list(group, memory.data(), at.way, list), words, at.text());
            memory.check_unchanged(at.text() + words);
          };
          // Outputs crossed; an output in another's input; two results in one place.
          refused("tensors 0 and 1 of the list overlap", {{0, n, n}, {n, 0, n}});
          refused("tensors 0 and 2 of the list overlap", {{0, 0, n}, {n, n, 5}, {0, 2 * n, n}});
          refused("tensors 0 and 1 of the list overlap", {{0, 2 * n, n}, {n, 2 * n, n}});
          // In part; tensors without elements count nowhere.
          refused("tensors 1 and 3 of the list overlap",
                  {{0, 0, 0}, {0, 0, n}, {3, 3, 0}, {n - 1, n - 1, n}});
          refused("tensors 0 and 1 of the list overlap", {{0, 0, n}, {10, 10, 20}});
          refused("tensor 1 of the list: the input and the output", {{2 * n, 2 * n, n}, {0, 1, n}});
        });
        check_works(group);
      }),
      "");
}

// One input for several outputs, neighbours, and what has no elements.
TEST_P(OverlapMesh, ListsWhoseTensorsDoNotOverlapAreRight) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              each_place(group, 4, [&](const Place& at, Floats& memory) {
                const size_t n = at.count;
                float* x = memory.data();
                const tutti_code code = reduce_list(group, x, at.way,
                                                    {{0, n, n},
                                                     {0, 2 * n, n},
                                                     {5, 5, 0},
                                                     {3 * n, 3 * n, 10},
                                                     {3 * n + 10, 3 * n + 10, 7}});
                check(code == TUTTI_OK, at.text() + tutti_last_error()->message);
                for (size_t i = 0; i < n; ++i) {
                  check(x[i] == memory.own(i), at.text() + "the input stays");
                  check(x[n + i] == sum_of(group, i) && x[2 * n + i] == sum_of(group, i),
                        at.text());
                }
                for (size_t i = 3 * n; i < 4 * n; ++i)
                  check(x[i] == (i < 3 * n + 17 ? sum_of(group, i) : memory.own(i)), at.text());
              });
            }),
            "");
}

// Tied weights: the tensor has one result, however often it is named.
TEST_P(OverlapMesh, ATensorThatIsNamedTwiceIsReducedOnce) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              each_place(group, 4, [&](const Place& at, Floats& memory) {
                const size_t n = at.count;
                float* x = memory.data();
                const tutti_code code = reduce_list(
                    group, x, at.way,
                    {{0, 0, n}, {n, 2 * n, n}, {0, 0, n}, {5, 5, 0}, {n, 2 * n, n}, {0, 0, n}});
                check(code == TUTTI_OK, at.text() + tutti_last_error()->message);
                for (size_t i = 0; i < n; ++i)
                  check(x[i] == sum_of(group, i) && x[2 * n + i] == sum_of(group, n + i),
                        at.text());
                check(reduce_list(group, x, at.way, {{n, n, n}, {n, n, n}}) == TUTTI_OK, at.text());
                for (size_t i = n; i < 2 * n; ++i) check(x[i] == sum_of(group, i), at.text());
              });
            }),
            "");
}

// Ordinary sides of an all_to_all are both copied, and may overlap.
TEST_P(OverlapMesh, SidesOfAnAllToAllInSharedMemoryMustNotOverlap) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const auto ranks = static_cast<size_t>(group.world_size());
              each_place(group, 3, [&](const Place& at, Floats& memory) {
                const auto call = [&](const tutti_options* options, tutti_work** work) {
                  return tutti_all_to_all(group.get(), memory.data(), memory.data(), at.count,
                                          TUTTI_F32, options, work);
                };
                const tutti_code code = outcome_of(at.way, call);
                if (at.shared) return check_refused(code, "all_to_all overlap", at.text());
                check(code == TUTTI_OK, at.text() + tutti_last_error()->message);
                const auto mine = static_cast<size_t>(group.rank());
                for (size_t i = 0; i < ranks * at.count; ++i) {
                  const size_t from = i / at.count, at_source = mine * at.count + i % at.count;
                  const float want =
                      memory.own(at_source) - static_cast<float>(mine) + static_cast<float>(from);
                  check(memory.data()[i] == want, at.text() + "element " + std::to_string(i));
                }
              });
            }),
            "");
}

}  // namespace
}  // namespace tutti
