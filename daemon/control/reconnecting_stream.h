// A client's gRPC stream that reconnects whenever it breaks.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "daemon/base/foreign_text.h"
#include "daemon/base/loop.h"
#include "daemon/control/channel.h"
#include "daemon/control/stream_writer.h"

namespace tutti {

// Used on one loop's thread, where its events are called. The destructor ends the stream and waits
// until gRPC has released it, so the loop may be destroyed afterwards. No thread of gRPC's releases
// a call: a channel whose last reference went there would be freed under that thread (gRPC 1.51).
template <class Out, class In>
class ReconnectingStream {
 public:
  using Reactor = grpc::ClientBidiReactor<Out, In>;
  // Starts the call on its stub: [&](auto* context, auto* reactor) { stub.async()->Attend(...) }.
  using Begin = std::function<void(grpc::ClientContext*, Reactor*)>;
  struct Events {
    std::function<void()> on_open;
    std::function<void(const In&)> on_message;
    std::function<void(const Status& why)> on_broken;  // Also if it never opened. Never OK.
  };

  ReconnectingStream(Loop& loop, Begin begin, Events events)
      : loop_(loop), begin_(std::move(begin)), events_(std::move(events)) {
    connect();
  }
  ~ReconnectingStream() {
    alive_.reset();
    loop_.cancel(redial_);
    stream_->context.TryCancel();
    stream_->done.wait();
  }
  ReconnectingStream(const ReconnectingStream&) = delete;
  ReconnectingStream& operator=(const ReconnectingStream&) = delete;

  bool is_open() const { return is_open_; }
  // Ends the stream in order, so that the peer can tell this from one that broke: waits for its
  // answer, at most so long. Nothing is used but the destructor afterwards.
  void finish(Millis timeout) {
    stream_->is_finishing = true;
    stream_->writer.finish();
    stream_->done.wait_for(timeout);
  }
  // Only while open.
  void send(Out message) { (void)stream_->writer.send(std::move(message)); }

 private:
  // As a latch of one, whose waiters may give up.
  class End {
   public:
    void set() {
      const std::lock_guard lock(mutex_);
      is_set_ = true;
      changed_.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_set_; });
    }
    void wait_for(Millis timeout) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, timeout, [this] { return is_set_; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_set_ = false;
  };
  // One call. Its reactions run on gRPC's threads and only post to the loop. Destroyed on the
  // loop's thread, after `done`, which is the last that gRPC's threads touch.
  struct Stream final : Reactor {
    Stream(Loop& loop, std::weak_ptr<ReconnectingStream*> alive)
        : loop(loop), alive(std::move(alive)) {}

    void post(std::function<void(ReconnectingStream&)> task) {
      loop.post([alive = alive, task = std::move(task)] {
        if (const auto owner = alive.lock()) task(**owner);
      });
    }
    void OnReadInitialMetadataDone(bool ok) override {
      if (ok) post([](ReconnectingStream& owner) { owner.on_open(); });
    }
    void OnReadDone(bool ok) override {
      if (!ok) {
        writer.close();
        this->RemoveHold();
        return;
      }
      clean_texts(in);
      post([message = std::move(in)](ReconnectingStream& owner) {
        owner.events_.on_message(message);
      });
      this->StartRead(&in);
    }
    void OnWriteDone(bool ok) override {
      if (writer.write_done(ok) && is_finishing) this->StartWritesDone();
    }
    void OnDone(const grpc::Status& status) override {
      const Status why =
          status.ok() ? unavailable("it closed the stream")
                      : Status(code_of(status.error_code()), clean_text(status.error_message()));
      post([why](ReconnectingStream& owner) { owner.on_broken(why); });
      done.set();
    }

    Loop& loop;
    std::weak_ptr<ReconnectingStream*> alive;
    grpc::ClientContext context;
    StreamWriter<Reactor, Out> writer{*this};
    In in;
    std::atomic<bool> is_finishing = false;
    End done;
  };

  void connect() {
    if (stream_ != nullptr) stream_->done.wait();  // It is about to be: on_broken() was posted.
    stream_ = std::make_unique<Stream>(loop_, alive_);
    begin_(&stream_->context, stream_.get());
    // The hold keeps the call open for writes from outside of reactions.
    stream_->AddHold();
    stream_->StartRead(&stream_->in);
    stream_->StartCall();
  }
  void on_open() {
    is_open_ = true;
    events_.on_open();
  }
  void on_broken(const Status& why) {
    is_open_ = false;
    redial_ = loop_.at(Clock::now() + Millis(kRedialMs), [this] { connect(); });
    events_.on_broken(why);
  }

  Loop& loop_;
  const Begin begin_;
  const Events events_;
  std::shared_ptr<ReconnectingStream*> alive_ = std::make_shared<ReconnectingStream*>(this);
  std::unique_ptr<Stream> stream_;
  Loop::TimerId redial_ = 0;
  bool is_open_ = false;
};

}  // namespace tutti
