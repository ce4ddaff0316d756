// A bare gRPC stream of byte buffers, one way, over the loopback: what the gRPC link is held
// against. Borrowed slices, one write at a time, the receiver drops what it gets.
#include <benchmark/benchmark.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {
namespace {

constexpr size_t kBurstBytes = 64 << 20;

std::atomic<size_t> g_arrived = 0;

class Drain : public grpc::ServerGenericBidiReactor {
 public:
  Drain() { StartRead(&message_); }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    g_arrived.fetch_add(message_.Length());
    g_arrived.notify_all();
    StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

class Service : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Drain;
  }
};

class BareStream {
 public:
  BareStream() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), arguments));
    call_ = stub_->PrepareCall(&context_, "/bare/stream", &queue_);
    call_->StartCall(this);
    wait();
  }
  ~BareStream() {
    call_->WritesDone(this);
    wait();
    grpc::Status status;
    call_->Finish(&status, this);
    wait();
    server_->Shutdown();
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) continue;
  }

  void write(const std::vector<char>& bytes) {
    const grpc::Slice slice(bytes.data(), bytes.size(), grpc::Slice::STATIC_SLICE);
    call_->Write(grpc::ByteBuffer(&slice, 1), this);
    wait();
  }

 private:
  void wait() {
    void* tag = nullptr;
    bool ok = false;
    require(queue_.Next(&tag, &ok) && ok, "a stream that goes on");
  }

  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

void grpc_stream(benchmark::State& state) {
  const std::vector<char> message(static_cast<size_t>(state.range(0)) << 10);
  BareStream stream;
  g_arrived = 0;
  size_t sent = 0;
  for (auto _ : state) {
    for (size_t burst = 0; burst < kBurstBytes; burst += message.size()) stream.write(message);
    sent += kBurstBytes;
    for (size_t seen = g_arrived; seen < sent; seen = g_arrived) g_arrived.wait(seen);
  }
  state.SetBytesProcessed(static_cast<int64_t>(sent));
}
BENCHMARK(grpc_stream)
    ->ArgName("KiB")
    ->Arg(64)
    ->Arg(1024)
    ->Arg(4096)
    ->UseRealTime()
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tutti
