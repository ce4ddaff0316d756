// A coordinator whose answers a test decides.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/membership/roster_message.h"
#include "proto/mesh.grpc.pb.h"

namespace tutti {

// A roster of this rank alone.
inline v1::CoordinatorMessage roster_of(uint32_t epoch, const v1::JoinRank& join) {
  v1::CoordinatorMessage message;
  message.mutable_roster()->set_job(join.job());
  message.mutable_roster()->set_epoch(epoch);
  message.mutable_roster()->set_secret("secret");
  v1::RosterRank& who = *message.mutable_roster()->add_ranks();
  who.set_pid(join.pid());
  who.set_host(join.host());
  return message;
}

inline v1::CoordinatorMessage refusal_of(const v1::JoinRank& join) {
  v1::CoordinatorMessage message;
  message.mutable_refused()->set_rank(join.rank());
  message.mutable_refused()->set_number(join.number());
  write_status(deadline_exceeded("late"), *message.mutable_refused()->mutable_status());
  return message;
}

// Records what workers send. Answers nothing by itself, or each join with the next of `epochs`.
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
  // Sends to the worker with the newest stream.
  void say(const v1::CoordinatorMessage& message) {
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->Write(message);
  }
  // Ends every stream and forgets what was said; workers reconnect.
  void end_streams() {
    const std::lock_guard lock(mutex_);
    for (grpc::ServerContext* context : contexts_) context->TryCancel();
    said_.clear();
  }

 private:
  using Stream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;

  grpc::Status Attend(grpc::ServerContext* context, Stream* stream) override {
    enter(context, stream);
    for (v1::WorkerMessage message; stream->Read(&message);) {
      const std::lock_guard lock(mutex_);
      said_.push_back(message);
      if (!message.has_join() || epochs_.empty()) continue;
      stream->Write(roster_of(epochs_.front(), message.join()));
      epochs_.erase(epochs_.begin());
    }
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
    std::erase(contexts_, context);
    return grpc::Status::OK;
  }
  void enter(grpc::ServerContext* context, Stream* stream) {
    const std::lock_guard lock(mutex_);
    contexts_.push_back(context);
    stream_ = stream;
    stream->SendInitialMetadata();
  }
  int port_ = 0;
  mutable std::mutex mutex_;      // Guards all below.
  std::vector<uint32_t> epochs_;  // Of the rosters to come.
  std::vector<v1::WorkerMessage> said_;
  Stream* stream_ = nullptr;  // The newest, or null if one has ended since.
  std::vector<grpc::ServerContext*> contexts_;
  std::unique_ptr<grpc::Server> server_;
};

// "join 0 after 5", "gone 0 of 1 UNAVAILABLE", "resume 1 with 0".
inline std::vector<std::string> words_of(const std::vector<v1::WorkerMessage>& said) {
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

}  // namespace tutti
