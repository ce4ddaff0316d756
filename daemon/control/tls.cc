#include "daemon/control/tls.h"

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <mutex>

#include "daemon/control/address.h"

namespace tutti {
namespace {

using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::StaticDataCertificateProvider;
using grpc::experimental::TlsCustomVerificationCheckRequest;

// gRPC's C++ interface reads files by itself and takes a key that is not the certificate's; its C
// interface asks for the certificates before each handshake.
class StoreServerCredentials final : public grpc::ServerCredentials {
 public:
  explicit StoreServerCredentials(std::shared_ptr<CertificateStore> store)
      : store_(std::move(store)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY, fetch, this))) {}
  ~StoreServerCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<StoreServerCredentials*>(self)->fetch(config);
  }
  // gRPC's threads.
  grpc_ssl_certificate_config_reload_status fetch(grpc_ssl_server_certificate_config** config) {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<const Certificates> now = store_->current();
    if (now == fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    fetched_ = now;
    const grpc_ssl_pem_key_cert_pair pair = {now->files.key.c_str(), now->files.chain.c_str()};
    *config = grpc_ssl_server_certificate_config_create(now->files.ca.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<CertificateStore> store_;
  std::mutex mutex_;
  std::shared_ptr<const Certificates> fetched_;
  grpc_server_credentials* const credentials_;  // Last: making them may fetch.
};

class NameVerifier final : public ExternalCertificateVerifier {
 public:
  NameVerifier(std::string dialled, std::string host, CertificateNames own)
      : dialled_(std::move(dialled)), host_(std::move(host)), own_(std::move(own)) {}

  // After the chain was verified. Always answers at once.
  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* answer) override {
    const grpc::string_ref pem = request->peer_cert();
    const Result<CertificateNames> names = certificate_names({pem.data(), pem.size()});
    if (names.ok() && (names_server(*names, dialled_, own_) ||
                       (!host_.empty() && names_host(*names, host_, own_))))
      return true;
    *answer = {grpc::StatusCode::UNAUTHENTICATED,
               "its certificate is for " + (names.ok() ? names->to_string() : "nobody") +
                   ", not for " + dialled_ + (host_.empty() ? "" : " or " + host_)};
    return true;
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string dialled_;
  const std::string host_;
  const CertificateNames own_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> tls_server_credentials(
    std::shared_ptr<CertificateStore> store) {
  return std::make_shared<StoreServerCredentials>(std::move(store));
}

std::shared_ptr<grpc::ChannelCredentials> tls_channel_credentials(CertificateStore& store,
                                                                  const std::string& address,
                                                                  const std::string& host) {
  const std::shared_ptr<const Certificates> now = store.current();
  const Result<Address> target = parse_address(address);
  const CertificateFiles& files = now->files;
  std::vector<grpc::experimental::IdentityKeyCertPair> own;
  if (!files.key.empty()) own.push_back({files.key, files.chain});
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<StaticDataCertificateProvider>(files.ca, own));
  options.watch_root_certs();
  if (!own.empty()) options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(ExternalCertificateVerifier::Create<NameVerifier>(
      target.ok() ? target->host : address, host, now->names));
  options.set_check_call_host(false);
  return grpc::experimental::TlsCredentials(options);
}

std::string tls_remedy(const std::string& why, const CertificateStore* store) {
  const auto says = [&why](const char* part) { return why.find(part) != std::string::npos; };
  // A refusal by the other side looks so, but so does a connection that was lost later.
  const bool closed =
      says("failed to connect") && (says("Socket closed") || says("Connection reset by peer"));
  if (store == nullptr)
    return closed ? "if tuttid there has tls = require, set it here, too (TUTTI_TLS=require)" : "";
  const std::string& directory = store->directory();
  if (says("wrong version number"))
    return "tuttid there does not speak TLS: set tls = require there";
  if (says("certificate verify failed"))
    return "no authority in " + directory + "/ca.crt has issued its certificate";
  if (!closed) return {};
  return "if it refuses the certificate " + directory + "/tls.crt, add the authority that issued " +
         "this to its ca.crt";
}

Status check_host_name(const ServerTls& tls, const std::optional<CertificateNames>& caller,
                       const std::string& host) {
  if (tls.store == nullptr) return {};
  if (caller && names_host(*caller, host, tls.store->current()->names)) return {};
  return permission_denied(
      "an agent calls itself host " + host + ", but " +
      (caller ? "its certificate is for " + caller->to_string() : "shows no certificate") +
      "; issue one with the DNS name " + host + ", or set host to what it names");
}

std::optional<CertificateNames> peer_names(const grpc::AuthContext& peer) {
  const std::vector<grpc::string_ref> pem =
      peer.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pem.empty()) return {};
  Result<CertificateNames> names = certificate_names({pem[0].data(), pem[0].size()});
  if (!names.ok()) return {};
  return *std::move(names);
}

}  // namespace tutti
