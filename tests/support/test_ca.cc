#include "tests/support/test_ca.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <filesystem>
#include <fstream>

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string pem_of(X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(bio, &bytes);
  std::string pem(bytes, static_cast<size_t>(count));
  BIO_free(bio);
  return pem;
}

std::string pem_of(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(bio, &bytes);
  std::string pem(bytes, static_cast<size_t>(count));
  BIO_free(bio);
  return pem;
}

void extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  if (value.empty()) return;
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Not signed. `issuer` null: itself.
X509* make_certificate(const CertificateRequest& request, EVP_PKEY* key, X509* issuer) {
  static std::atomic<long> serial = 1;
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate), request.begins_s);
  X509_gmtime_adj(X509_getm_notAfter(certificate), request.ends_s);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  if (!request.common_name.empty())
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(request.common_name.c_str()),
                               -1, -1, 0);
  X509_set_issuer_name(certificate, issuer == nullptr ? subject : X509_get_subject_name(issuer));
  return certificate;
}

X509* make_authority(const std::string& name, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  X509* certificate = make_certificate({.common_name = name}, key, issuer);
  extend(certificate, issuer, NID_subject_key_identifier, "hash");
  extend(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
  extend(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  X509_sign(certificate, issuer_key, EVP_sha256());
  return certificate;
}

void write_file(const fs::path& path, const std::string& text, fs::perms mode) {
  std::ofstream(path) << text;
  fs::permissions(path, mode);
}

}  // namespace

struct TestCa::Parts {
  ~Parts() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  X509* certificate = nullptr;
  EVP_PKEY* key = EVP_EC_gen("P-256");
  std::string chain;  // PEM: this authority, if what it issues needs it.
};

TestCa::TestCa(const std::string& name) : parts_(std::make_unique<Parts>()) {
  parts_->certificate = make_authority(name, parts_->key, nullptr, parts_->key);
}
TestCa::TestCa(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TestCa::~TestCa() = default;

std::string TestCa::certificate() const { return pem_of(parts_->certificate); }

TestCa TestCa::intermediate(const std::string& name) const {
  auto parts = std::make_unique<Parts>();
  parts->certificate = make_authority(name, parts->key, parts_->certificate, parts_->key);
  parts->chain = pem_of(parts->certificate) + parts_->chain;
  return TestCa(std::move(parts));
}

IssuedCertificate TestCa::issue(const CertificateRequest& request) const {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = make_certificate(request, key, parts_->certificate);
  extend(certificate, parts_->certificate, NID_basic_constraints, "critical,CA:FALSE");
  extend(certificate, parts_->certificate, NID_authority_key_identifier, "keyid");
  extend(certificate, parts_->certificate, NID_subject_alt_name, request.names);
  extend(certificate, parts_->certificate, NID_ext_key_usage, request.usages);
  X509_sign(certificate, parts_->key, EVP_sha256());
  IssuedCertificate issued{pem_of(certificate) + parts_->chain, pem_of(key)};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return issued;
}

void mount_secret(const std::string& directory, const IssuedCertificate& issued,
                  const std::string& ca) {
  static std::atomic<int> version = 0;
  const fs::path data = ".." + std::to_string(version++);
  const fs::path top = directory;
  fs::create_directories(top / data);
  write_file(top / data / "ca.crt", ca, fs::perms(0644));
  write_file(top / data / "tls.crt", issued.chain, fs::perms(0644));
  write_file(top / data / "tls.key", issued.key, fs::perms(0640));
  fs::remove(top / "..next");
  fs::create_directory_symlink(data, top / "..next");
  fs::rename(top / "..next", top / "..data");
  for (const char* name : {"ca.crt", "tls.crt", "tls.key"})
    if (!fs::is_symlink(top / name)) fs::create_symlink(fs::path("..data") / name, top / name);
}

}  // namespace tutti
