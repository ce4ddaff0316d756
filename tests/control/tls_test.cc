// TLS on gRPC servers and channels: who is believed, and certificates that change.
#include "daemon/control/tls.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "proto/mesh.grpc.pb.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_ca.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Answers who the caller is. Enlist streams are answered message by message.
class NamingServer {
 public:
  explicit NamingServer(std::shared_ptr<grpc::ServerCredentials> credentials)
      : credentials_(std::move(credentials)) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&admin_);
    builder.RegisterService(&mesh_);
    builder.AddListeningPort("127.0.0.1:0", credentials_, &port_);
    server_ = builder.BuildAndStart();
  }
  ~NamingServer() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  struct AdminNames final : v1::Admin::Service {
    grpc::Status Call(grpc::ServerContext* context, const v1::AdminRequest*,
                      v1::AdminAnswer* answer) override {
      const auto names = peer_names(*context->auth_context());
      answer->set_message(names ? names->to_string() : "nobody");
      return grpc::Status::OK;
    }
  };
  struct MeshEcho final : v1::Mesh::Service {
    grpc::Status Enlist(
        grpc::ServerContext*,
        grpc::ServerReaderWriter<v1::AgentAnswer, v1::AgentMessage>* stream) override {
      v1::AgentMessage message;
      while (stream->Read(&message)) stream->Write({});
      return grpc::Status::OK;
    }
  };

  const std::shared_ptr<grpc::ServerCredentials> credentials_;
  AdminNames admin_;
  MeshEcho mesh_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

struct MeshTls : ::testing::Test {
  std::string mount(const std::string& name, const CertificateRequest& request) {
    mount_secret(root + "/" + name, ca.issue(request), ca.certificate());
    return root + "/" + name;
  }
  // With a certificate of these names.
  std::shared_ptr<CertificateStore> store_of(const std::string& name, const std::string& names,
                                             CertificateUse use = CertificateUse::client) {
    return open(mount(name, {.common_name = name, .names = names}), use);
  }
  std::shared_ptr<CertificateStore> open(const std::string& directory, CertificateUse use) {
    auto store = CertificateStore::open(directory, use,
                                        [](const std::string& text) { ADD_FAILURE() << text; });
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return *store;
  }
  std::shared_ptr<grpc::ServerCredentials> server_of(const std::string& names) {
    return tls_server_credentials(store_of("server", names, CertificateUse::server_and_client));
  }
  static std::shared_ptr<grpc::Channel> dial(CertificateStore& store, const std::string& address,
                                             const std::string& host = {}) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address, tls_channel_credentials(store, address, host),
                                     arguments);
  }
  // Whom the server takes us for, or the error. `server`: the common name of its certificate.
  static std::string call(const std::shared_ptr<grpc::Channel>& channel,
                          std::string* server = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::AdminAnswer answer;
    const grpc::Status status = v1::Admin::NewStub(channel)->Call(&context, {}, &answer);
    if (!status.ok()) return "failed: " + status.error_message();
    if (server != nullptr) *server = peer_names(*context.auth_context())->common_name;
    return answer.message();
  }
  static std::string call(CertificateStore& store, const std::string& address) {
    return call(dial(store, address));
  }

  const TestCa ca{"authority"};
  const TemporaryDirectory directory;
  const std::string root = directory;
};

TEST_F(MeshTls, ServerKnowsTheNamesOfItsCaller) {
  const NamingServer server(server_of("IP:127.0.0.1"));
  const auto client = store_of("b", "DNS:b,URI:spiffe://x/b");
  EXPECT_EQ(call(*client, server.address()), "DNS b, URI spiffe://x/b, CN b");
}

TEST_F(MeshTls, CallerWithoutACertificateHasNoNames) {
  const NamingServer server(server_of("IP:127.0.0.1"));
  const auto client = store_of("b", "DNS:b");
  EXPECT_EQ(call(*client, server.address()), "DNS b, CN b");
  fs::remove(root + "/b/..data/tls.key");
  EXPECT_EQ(call(*client, server.address()), "nobody");
}

TEST_F(MeshTls, ServerOfAnotherNameIsRefusedByName) {
  const NamingServer server(server_of("IP:10.0.0.1,DNS:localhost"));
  const auto client = store_of("b", "DNS:b");
  const std::string error = call(*client, server.address());
  EXPECT_THAT(error, HasSubstr("its certificate is for DNS localhost, IP 10.0.0.1, CN server, not "
                               "for 127.0.0.1"));
}

TEST_F(MeshTls, ServerMayBeKnownByItsHostsName) {
  const NamingServer server(server_of("DNS:a"));
  const auto client = store_of("b", "DNS:b");
  EXPECT_EQ(call(dial(*client, server.address(), "a")), "DNS b, CN b");
  EXPECT_THAT(call(dial(*client, server.address(), "c")),
              HasSubstr("its certificate is for DNS a, CN server, not for 127.0.0.1 or c"));
}

TEST_F(MeshTls, ServerWithASiblingsSpiffeIdIsTaken) {
  const NamingServer server(server_of("URI:spiffe://x/ns/tutti/sa/agent"));
  const auto sibling = store_of("b", "URI:spiffe://x/ns/tutti/sa/admin");
  EXPECT_EQ(call(*sibling, server.address()), "URI spiffe://x/ns/tutti/sa/admin, CN b");
  fs::remove(root + "/b/..data/tls.key");  // Workers have the agent's certificate alone.
  EXPECT_EQ(call(*open(root + "/b", CertificateUse::client), server.address()), "nobody");
  const auto stranger = store_of("c", "URI:spiffe://x/ns/else/sa/agent");
  EXPECT_THAT(call(*stranger, server.address()), HasSubstr("its certificate is for URI spiffe:"));
}

TEST_F(MeshTls, ServerOfAnotherAuthorityIsRefused) {
  const NamingServer server(server_of("IP:127.0.0.1"));
  const TestCa another("authority");
  mount_secret(root + "/b", another.issue({.common_name = "b"}), another.certificate());
  const auto client = open(root + "/b", CertificateUse::client);
  EXPECT_EQ(tls_remedy(call(*client, server.address()), client.get()),
            "no authority in " + root + "/b/ca.crt has issued its certificate");
}

// It trusts the server, but the server does not trust it.
TEST_F(MeshTls, CallerOfAnotherAuthorityIsRefused) {
  const NamingServer server(server_of("IP:127.0.0.1"));
  const TestCa another("another");
  mount_secret(root + "/b", another.issue({.common_name = "b"}),
               another.certificate() + ca.certificate());
  const auto client = open(root + "/b", CertificateUse::client);
  const std::string error = call(*client, server.address());
  EXPECT_THAT(error, HasSubstr("failed: "));
  EXPECT_THAT(tls_remedy(error, client.get()),
              HasSubstr("if it refuses the certificate " + root + "/b/tls.crt"));
}

TEST_F(MeshTls, OnlyOneSideWithTlsSaysSo) {
  const NamingServer server(server_of("IP:127.0.0.1"));
  const std::string error =
      call(grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials()));
  EXPECT_THAT(tls_remedy(error, nullptr), HasSubstr("TUTTI_TLS=require"));
  const NamingServer plain(grpc::InsecureServerCredentials());
  const auto client = store_of("b", "DNS:b");
  EXPECT_EQ(tls_remedy(call(*client, plain.address()), client.get()),
            "tuttid there does not speak TLS: set tls = require there");
  EXPECT_EQ(tls_remedy(call(*client, "127.0.0.1:1"), client.get()), "");
  // A connection that was lost later.
  EXPECT_EQ(tls_remedy("Socket closed", nullptr), "");
  EXPECT_EQ(tls_remedy("Socket closed", client.get()), "");
}

TEST_F(MeshTls, NewCertificatesAreUsedWhileStreamsGoOn) {
  const NamingServer server(server_of("IP:127.0.0.1"));
  const auto client = store_of("b", "DNS:b");
  const auto channel = dial(*client, server.address());
  grpc::ClientContext context;
  const auto stream = v1::Mesh::NewStub(channel)->Enlist(&context);
  v1::AgentAnswer answer;
  ASSERT_TRUE(stream->Write({}) && stream->Read(&answer));
  mount("server", {.common_name = "renewed", .names = "IP:127.0.0.1"});
  mount("b", {.common_name = "changed", .names = "DNS:b"});
  std::string name;
  EXPECT_EQ(call(channel, &name), "DNS b, CN b");
  EXPECT_EQ(name, "server");
  EXPECT_EQ(call(dial(*client, server.address()), &name), "DNS b, CN changed");
  EXPECT_EQ(name, "renewed");
  ASSERT_TRUE(stream->Write({}) && stream->Read(&answer));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// Both sides learn of the new authority before certificates of it are used.
TEST_F(MeshTls, AuthorityIsExchangedInSteps) {
  const NamingServer server(server_of("IP:127.0.0.1"));
  const TestCa next("next");
  const std::string both = ca.certificate() + next.certificate();
  const auto client = store_of("b", "DNS:b");
  const auto mount_both = [&](const TestCa& issuer, const std::string& authorities) {
    mount_secret(root + "/server", issuer.issue({.common_name = "s", .names = "IP:127.0.0.1"}),
                 authorities);
    EXPECT_EQ(call(*client, server.address()).substr(0, 5), "DNS b");
    mount_secret(root + "/b", issuer.issue({.common_name = "b", .names = "DNS:b"}), authorities);
    EXPECT_EQ(call(*client, server.address()).substr(0, 5), "DNS b");
  };
  mount_both(ca, both);
  mount_both(next, both);
  mount_both(next, next.certificate());
}

}  // namespace
}  // namespace tutti
