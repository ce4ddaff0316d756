// A worker's attendance at coordinators that do not do as they should, or forget.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "daemon/mesh/wire.h"
#include "proto/mesh.grpc.pb.h"
#include "tests/mesh_net.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Stream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;

// Keeps what workers say, and answers with what the test says: nothing, or one roster a join (of
// epoch 0: none). Of a rank's joins it refuses each when it has the next.
class FakeCoordinator final : public v1::Mesh::Service {
 public:
  explicit FakeCoordinator(std::vector<uint32_t> epochs = {}) : epochs_(std::move(epochs)) {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<v1::WorkerMessage> said() const {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  // Every stream ends; workers come back by new ones.
  void end_streams() {
    const std::lock_guard lock(mutex_);
    for (grpc::ServerContext* context : contexts_) context->TryCancel();
    said_.clear();
  }

 private:
  grpc::Status Attend(grpc::ServerContext* context, Stream* stream) override {
    enter(context);
    stream->SendInitialMetadata();
    for (v1::WorkerMessage message; stream->Read(&message);) {
      const std::lock_guard lock(mutex_);
      said_.push_back(message);
      if (message.has_join()) refuse_last(*stream, message.join());
      if (message.has_join() && !epochs_.empty()) answer(*stream, message.join());
    }
    const std::lock_guard lock(mutex_);
    std::erase(contexts_, context);
    return grpc::Status::OK;
  }
  void enter(grpc::ServerContext* context) {
    const std::lock_guard lock(mutex_);
    contexts_.push_back(context);
  }
  void refuse_last(Stream& stream, const v1::JoinRank& join) {
    v1::JoinRank& last = joins_[join.rank()];
    if (last.pid() != 0) {
      v1::CoordinatorMessage message;
      message.mutable_refused()->set_rank(last.rank());
      message.mutable_refused()->set_number(last.number());
      write_status(deadline_exceeded("late"), *message.mutable_refused()->mutable_status());
      stream.Write(message);
    }
    last = join;
  }
  void answer(Stream& stream, const v1::JoinRank& join) {
    const uint32_t epoch = epochs_.front();
    epochs_.erase(epochs_.begin());
    if (epoch != 0) stream.Write(roster_of(epoch, join));
  }
  static v1::CoordinatorMessage roster_of(uint32_t epoch, const v1::JoinRank& join) {
    v1::CoordinatorMessage message;
    message.mutable_roster()->set_job(join.job());
    message.mutable_roster()->set_epoch(epoch);
    message.mutable_roster()->set_secret("secret");
    v1::RosterRank& who = *message.mutable_roster()->add_ranks();
    who.set_pid(join.pid());
    who.set_host(join.host());
    return message;
  }

  int port_ = 0;
  mutable std::mutex mutex_;      // Guards all below.
  std::vector<uint32_t> epochs_;  // Of the rosters to come.
  std::vector<v1::WorkerMessage> said_;
  std::map<uint32_t, v1::JoinRank> joins_;  // By rank, the last of each.
  std::vector<grpc::ServerContext*> contexts_;
  std::unique_ptr<grpc::Server> server_;
};

// "join 0 after 5", "gone 0 of 1 UNAVAILABLE", "resume 1 with 0".
std::vector<std::string> words_of(const std::vector<v1::WorkerMessage>& said) {
  std::vector<std::string> words;
  for (const v1::WorkerMessage& message : said) {
    const auto number = [](uint32_t value) { return std::to_string(value); };
    if (message.has_join())
      words.push_back("join " + number(message.join().rank()) + " after " +
                      number(message.join().last_epoch()));
    if (message.has_gone())
      words.push_back("gone " + number(message.gone().rank()) + " of " +
                      number(message.gone().epoch()) + " " +
                      std::string(name_of(read_status(message.gone().cause()).code())));
    if (!message.has_resume()) continue;
    std::string text =
        "resume " + number(message.resume().epoch()) + " at " + message.resume().host() + " with";
    for (const uint32_t rank : message.resume().ranks()) text += " " + number(rank);
    if (message.resume().has_broken()) text += " broken: " + message.resume().broken().message();
    words.push_back(text);
  }
  return words;
}

struct MeshAttendance : testing::Test {
  bool hears(const FakeCoordinator& coordinator, size_t messages) {
    return turn_until(loop, [&] { return coordinator.said().size() >= messages; });
  }
  Loop loop;
};

TEST_F(MeshAttendance, JoinThatNobodyAnswersFailsInTimeAndIsWithdrawn) {
  FakeCoordinator coordinator;
  Attendee a(loop, coordinator.address(), "a");
  a.join(0, 2);  // The stream is open once it is heard.
  ASSERT_TRUE(hears(coordinator, 1));
  const TimePoint begin = Clock::now();
  a.join(1, 2, 300);
  ASSERT_TRUE(turn_until(loop, [&] { return !a.refused.empty(); }));
  EXPECT_GE(Clock::now() - begin, Millis(300));
  EXPECT_LT(Clock::now() - begin, Millis(300 + 2'500));  // 300, were the machine not busy.
  EXPECT_EQ(a.refused[0].first, 1u);
  EXPECT_EQ(a.refused[0].second.code(), Code::deadline_exceeded);
  EXPECT_THAT(a.refused[0].second.message(),
              HasSubstr("the coordinator at " + coordinator.address() +
                        " did not answer in time while rank 1 of job \"demo\" waited to join"));
  ASSERT_TRUE(hears(coordinator, 3));
  EXPECT_THAT(words_of(coordinator.said()),
              ElementsAre("join 0 after 0", "join 1 after 0", "gone 1 of 0 OK"));
  EXPECT_EQ(a.refused.size(), 1u);
}

TEST_F(MeshAttendance, LateRefusalOfAnEarlierJoinIsIgnored) {
  FakeCoordinator coordinator({0, 1});
  Attendee a(loop, coordinator.address(), "a");
  a.join(0, 1);
  ASSERT_TRUE(hears(coordinator, 1));
  a.join(0, 1);
  ASSERT_TRUE(turn_until(loop, [&] { return a.rosters.size() == 1; }));
  EXPECT_TRUE(a.refused.empty()) << a.refused[0].second.to_string();
}

TEST_F(MeshAttendance, JoinTellsTheNewestEpochThatTheWorkerHad) {
  FakeCoordinator coordinator({5, 7});
  Attendee a(loop, coordinator.address(), "a");
  for (const uint32_t epoch : {5u, 7u}) {
    a.join(0, 1);
    ASSERT_TRUE(turn_until(loop, [&] { return !a.rosters.empty(); }));
    EXPECT_EQ(a.rosters[0].epoch, epoch);
    a.attendance->gone(epoch, 0, {});
    a.rosters.clear();
  }
  a.join(0, 1);
  ASSERT_TRUE(hears(coordinator, 5));
  EXPECT_THAT(words_of(coordinator.said()),
              ElementsAre("join 0 after 0", "gone 0 of 5 OK", "join 0 after 5", "gone 0 of 7 OK",
                          "join 0 after 7"));
}

// Its worlds and links are told apart by their numbers.
TEST_F(MeshAttendance, EpochWhoseNumberWasThereBeforeIsRefused) {
  FakeCoordinator coordinator({5, 5, 4, 6});
  Attendee a(loop, coordinator.address(), "a");
  a.join(0, 1);
  ASSERT_TRUE(turn_until(loop, [&] { return a.rosters.size() == 1; }));
  for (const std::string epoch : {"5", "4"}) {
    a.join(0, 1);
    ASSERT_TRUE(turn_until(loop, [&] { return a.refused.size() == 1; }));
    EXPECT_EQ(a.refused[0].second.code(), Code::unavailable);
    EXPECT_THAT(a.refused[0].second.message(),
                HasSubstr("started epoch " + epoch + " of job \"demo\" anew, after epoch 5"));
    a.refused.clear();
  }
  ASSERT_TRUE(hears(coordinator, 5));
  EXPECT_THAT(words_of(coordinator.said()),
              ElementsAre("join 0 after 0", "join 0 after 5", "gone 0 of 5 UNAVAILABLE",
                          "join 0 after 5", "gone 0 of 4 UNAVAILABLE"));
  a.join(0, 1);
  ASSERT_TRUE(turn_until(loop, [&] { return a.rosters.size() == 2; }));
  EXPECT_EQ(a.rosters[1].epoch, 6u);
}

TEST_F(MeshAttendance, ResumeTellsWhatBecameOfTheEpoch) {
  FakeCoordinator coordinator({5});
  Attendee a(loop, coordinator.address(), "a");
  a.join(0, 1, 60'000, "sesame");
  ASSERT_TRUE(turn_until(loop, [&] { return a.rosters.size() == 1; }));
  coordinator.end_streams();
  ASSERT_TRUE(hears(coordinator, 1));
  EXPECT_THAT(words_of(coordinator.said()), ElementsAre("resume 5 at a with 0"));
  EXPECT_EQ(coordinator.said()[0].resume().roster().secret(), "secret");
  EXPECT_EQ(coordinator.said()[0].resume().token(), "sesame");
  a.attendance->gone(5, 0, unavailable("rank 0 died"));
  ASSERT_TRUE(hears(coordinator, 2));
  for (int times = 0; times < 2; ++times) {  // It cannot know who heard of it.
    coordinator.end_streams();
    ASSERT_TRUE(hears(coordinator, 1));
    EXPECT_THAT(words_of(coordinator.said()),
                ElementsAre("resume 5 at a with broken: rank 0 died"));
  }
}

}  // namespace
}  // namespace tutti
