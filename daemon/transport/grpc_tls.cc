#include "daemon/transport/grpc_tls.h"

#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

namespace tutti {
namespace {

using grpc::experimental::TlsCustomVerificationCheckRequest;

class PinnedCertificate final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  PinnedCertificate(std::string fingerprint, std::shared_ptr<std::atomic<bool>> met_another)
      : fingerprint_(std::move(fingerprint)), met_another_(std::move(met_another)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const grpc::string_ref shown = request->peer_cert();
    if (fingerprint_of_pem({shown.data(), shown.size()}) != fingerprint_) {
      *met_another_ = true;
      *status = {grpc::StatusCode::UNAUTHENTICATED, "another certificate"};
    }
    return true;  // Done at once.
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string fingerprint_;
  const std::shared_ptr<std::atomic<bool>> met_another_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> tls_server_credentials(const TlsIdentity& own) {
  grpc::SslServerCredentialsOptions options(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs.push_back({own.key_pem(), own.certificate_pem()});
  return grpc::SslServerCredentials(options);
}

// Neither names nor authorities count: what is pinned is the whole certificate.
std::shared_ptr<grpc::ChannelCredentials> tls_channel_credentials(
    const std::string& fingerprint, std::shared_ptr<std::atomic<bool>> met_another) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<PinnedCertificate>(
          fingerprint, std::move(met_another)));
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace tutti
