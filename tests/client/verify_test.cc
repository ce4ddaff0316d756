// Results that ranks compare by their checksums, and the ranks that are named where they differ.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "tests/client/fixture.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

using VerifyTest = ClientTest;

tutti_options verifying() {
  tutti_options options = tutti_defaults();
  options.verify = 1;
  return options;
}

// Memory of two pages that are one: what is written to the second replaces the first. So an output
// here holds something else than the operation's result, as in memory that is damaged.
class DamagedMemory {
 public:
  DamagedMemory() {
    EXPECT_EQ(ftruncate(fileno(file_.get()), kPage), 0);
    base_ =
        static_cast<char*>(mmap(nullptr, 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (const long offset : {0L, kPage})
      EXPECT_NE(mmap(base_ + offset, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     fileno(file_.get()), 0),
                MAP_FAILED);
  }
  DamagedMemory(const DamagedMemory&) = delete;
  DamagedMemory& operator=(const DamagedMemory&) = delete;
  ~DamagedMemory() { munmap(base_, 2 * kPage); }
  float* data() { return reinterpret_cast<float*>(base_); }
  static size_t count() { return 2 * kPage / sizeof(float); }

 private:
  static inline const long kPage = sysconf(_SC_PAGESIZE);
  const std::unique_ptr<FILE, int (*)(FILE*)> file_{tmpfile(), fclose};
  char* base_ = nullptr;
};

// XXH3_64bits() of no bytes, and of "abc" as its authors' program prints it.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(tutti_checksum(nullptr, 0), 0x2d06800538d394c2u);
  EXPECT_EQ(tutti_checksum("abc", 3), 0x78af5f94892f3950u);
}

TEST_F(VerifyTest, RanksWithOneResultAgree) {
  join_all();
  const tutti_options options = verifying();
  each([&](int rank) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{100'000}}) {
      std::vector<float> x = input(rank, count), all(kWorld * count);
      tutti_work* work = nullptr;
      EXPECT_EQ(tutti_all_reduce(group(rank), x.data(), x.data(), count, TUTTI_F32, TUTTI_SUM,
                                 &options, nullptr),
                TUTTI_OK)
          << tutti_last_error()->message;
      for (size_t i = 0; i < count; i += 999) EXPECT_EQ(x[i], summed(i));
      EXPECT_EQ(
          tutti_all_gather(group(rank), x.data(), all.data(), count, TUTTI_F32, &options, &work),
          TUTTI_OK);
      EXPECT_EQ(tutti_work_wait(work, -1), TUTTI_OK);
      tutti_work_free(work);
      EXPECT_EQ(
          tutti_broadcast(group(rank), all.data(), all.size(), TUTTI_F32, 1, &options, nullptr),
          TUTTI_OK);
    }
  });
}

// What each rank holds of these differs: there is nothing to compare.
TEST_F(VerifyTest, OtherCollectivesIgnoreIt) {
  join_all();
  const tutti_options options = verifying();
  each([&](int rank) {
    std::vector<float> x = input(rank, kWorld), part(1);
    EXPECT_EQ(tutti_reduce_scatter(group(rank), x.data(), part.data(), 1, TUTTI_F32, TUTTI_SUM,
                                   &options, nullptr),
              TUTTI_OK);
    EXPECT_EQ(tutti_reduce(group(rank), x.data(), x.data(), 3, TUTTI_F32, TUTTI_SUM, 0, &options,
                           nullptr),
              TUTTI_OK);
    EXPECT_EQ(tutti_barrier(group(rank), &options, nullptr), TUTTI_OK);
  });
}

TEST_F(VerifyTest, ADamagedResultIsNamedOnEveryRank) {
  join_all();
  DamagedMemory damaged;
  const tutti_options options = verifying();
  const auto expect_named = [](tutti_code code) {
    EXPECT_EQ(code, TUTTI_DATA_LOSS);
    EXPECT_EQ(tutti_last_error()->rank, 1);
    EXPECT_THAT(tutti_last_error()->message, HasSubstr("but on rank 1 (host "));
    EXPECT_THAT(tutti_last_error()->message, ::testing::Not(HasSubstr("rank 0")));
  };
  each([&](int rank) {
    const size_t count = DamagedMemory::count();
    const std::vector<float> x = input(rank, count);
    std::vector<float> sound(count);
    float* out = rank == 1 ? damaged.data() : sound.data();
    expect_named(tutti_all_reduce(group(rank), x.data(), out, count, TUTTI_F32, TUTTI_SUM, &options,
                                  nullptr));
    tutti_work* work = nullptr;
    expect_named(
        tutti_all_reduce(group(rank), x.data(), out, count, TUTTI_F32, TUTTI_SUM, &options, &work));
    EXPECT_EQ(work, nullptr);
    const void* in = x.data();
    void* listed = out;
    expect_named(tutti_all_reduce_many(group(rank), &in, &listed, &count, 1, TUTTI_F32, TUTTI_SUM,
                                       &options, nullptr));
    // The group goes on, and does not look where it is not told to.
    EXPECT_EQ(
        tutti_all_reduce(group(rank), x.data(), out, count, TUTTI_F32, TUTTI_SUM, nullptr, nullptr),
        TUTTI_OK);
  });
}

TEST_F(VerifyTest, OptionsOfThreeValuesHaveNoOther) {
  join_all();
  each([&](int rank) {
    tutti_options options = tutti_defaults();
    options.verify = 2;
    float x = 1;
    EXPECT_EQ(tutti_all_reduce(group(rank), &x, &x, 1, TUTTI_F32, TUTTI_SUM, &options, nullptr),
              TUTTI_INVALID_ARGUMENT);
    EXPECT_THAT(tutti_last_error()->message, HasSubstr("verify = 2"));
  });
}

}  // namespace
}  // namespace tutti
