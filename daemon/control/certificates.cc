#include "daemon/control/certificates.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "daemon/base/foreign_text.h"

namespace tutti {
namespace {

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
void free_names(GENERAL_NAMES* names) { sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free); }
void free_stack(STACK_OF(X509) * stack) { sk_X509_free(stack); }

using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using GeneralNames = std::unique_ptr<GENERAL_NAMES, Free<free_names>>;
using Stack = std::unique_ptr<STACK_OF(X509), Free<free_stack>>;
using Store = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using Verification = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;

constexpr std::string_view kSpiffe = "spiffe://";
constexpr const char* kDocs = "; see docs/tls.md";

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

Bio reader_of(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A key with a passphrase does not parse, instead of asking the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

// Empty if one of them does not parse.
std::vector<Certificate> parse_certificates(const std::string& pem) {
  std::vector<Certificate> certificates;
  const Bio bio = reader_of(pem);
  ERR_clear_error();
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr))
    certificates.emplace_back(next);
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) certificates.clear();
  return certificates;
}

Key parse_key(const std::string& pem) {
  Key key(PEM_read_bio_PrivateKey(reader_of(pem).get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return key;
}

// Empty for a text with a zero byte, which others might read differently.
std::string text_of(const ASN1_STRING* string) {
  if (string == nullptr) return {};
  const auto* bytes = reinterpret_cast<const char*>(ASN1_STRING_get0_data(string));
  const std::string text(bytes, static_cast<size_t>(ASN1_STRING_length(string)));
  return text.find('\0') == std::string::npos ? text : "";
}

std::string address_of(const ASN1_STRING* bytes) {
  const int length = ASN1_STRING_length(bytes);
  if (length != 4 && length != 16) return {};
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(length == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(bytes), text.data(),
            text.size());
  return text.data();
}

void add_name(const GENERAL_NAME& name, CertificateNames& names) {
  if (name.type == GEN_DNS) names.dns.push_back(lower(text_of(name.d.dNSName)));
  if (name.type == GEN_IPADD) names.addresses.push_back(address_of(name.d.iPAddress));
  if (name.type == GEN_URI) names.uris.push_back(text_of(name.d.uniformResourceIdentifier));
}

std::string common_name_of(const X509* certificate) {
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return {};
  return text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

CertificateNames names_of(const X509* certificate) {
  CertificateNames names{.common_name = common_name_of(certificate)};
  const GeneralNames found(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  const int count = found == nullptr ? 0 : sk_GENERAL_NAME_num(found.get());
  for (int i = 0; i < count; ++i) add_name(*sk_GENERAL_NAME_value(found.get(), i), names);
  // SPIFFE allows exactly one URI.
  if (names.uris.size() == 1 && names.uris[0].starts_with(kSpiffe)) names.spiffe_id = names.uris[0];
  return names;
}

std::time_t time_of(const ASN1_TIME* text) {
  std::tm time{};
  return ASN1_TIME_to_tm(text, &time) == 1 ? timegm(&time) : 0;
}

// X509_V_OK or why not. The flags are those of gRPC.
int verify(std::span<const Certificate> chain, std::span<const Certificate> authorities,
           int purpose) {
  const Store store(X509_STORE_new());
  for (const Certificate& authority : authorities)
    X509_STORE_add_cert(store.get(), authority.get());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  const Stack between(sk_X509_new_null());
  for (const Certificate& one : chain.subspan(1)) sk_X509_push(between.get(), one.get());
  const Verification verification(X509_STORE_CTX_new());
  X509_STORE_CTX_init(verification.get(), store.get(), chain.front().get(), between.get());
  X509_STORE_CTX_set_purpose(verification.get(), purpose);
  const bool valid = X509_verify_cert(verification.get()) == 1;
  const int error = X509_STORE_CTX_get_error(verification.get());
  ERR_clear_error();
  return !valid && error == X509_V_OK ? X509_V_ERR_UNSPECIFIED : error;
}

std::string remedy_of(int error, CertificateUse use) {
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "renew it";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "look at this host's clock, or wait";
    case X509_V_ERR_INVALID_PURPOSE:
      return use == CertificateUse::client
                 ? "have it issued for clients (extended key usage clientAuth)"
                 : "have it issued for servers and clients (extended key usages serverAuth and "
                   "clientAuth)";
    default:
      return "put the authority that issued it into ca.crt beside it";
  }
}

Status check_chain(std::span<const Certificate> chain, std::span<const Certificate> authorities,
                   CertificateUse use, const std::string& path) {
  int error = verify(chain, authorities, X509_PURPOSE_SSL_CLIENT);
  if (error == X509_V_OK && use == CertificateUse::server_and_client)
    error = verify(chain, authorities, X509_PURPOSE_SSL_SERVER);
  if (error == X509_V_OK) return {};
  return failed_precondition(
      "the certificate " + path + " (" + names_of(chain.front().get()).to_string() +
      ") is not valid: " + X509_verify_cert_error_string(error) + "; " + remedy_of(error, use));
}

Status check_key(const std::string& pem, const X509* certificate, const std::string& directory) {
  const std::string path = directory + "/tls.key";
  const Key key = parse_key(pem);
  if (key == nullptr)
    return failed_precondition(path + " is no private key in PEM without a passphrase" + kDocs);
  const bool fits = X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (fits) return {};
  return failed_precondition(path +
                             " is not the key of the certificate tls.crt beside it; replace "
                             "both at once");
}

// The last part of the path of `id` if it and `own` are siblings.
std::string_view end_of_sibling(std::string_view id, std::string_view own) {
  const size_t parent = own.rfind('/') + 1;  // 0 if `own` is empty.
  const bool has_path = parent > kSpiffe.size() && id.size() > parent;
  if (!has_path || id.substr(0, parent) != own.substr(0, parent)) return {};
  const std::string_view end = id.substr(parent);
  return end.find('/') == std::string_view::npos ? end : std::string_view();
}

// An address in the form of CertificateNames, any other text in lower case.
std::string normal_host(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  for (const int family : {AF_INET, AF_INET6})
    if (inet_pton(family, host.c_str(), bytes.data()) == 1)
      return inet_ntop(family, bytes.data(), text.data(), text.size());
  return lower(host);
}

// A name that both have. An empty one is that of a name that could not be read.
bool have_common(const std::vector<std::string>& some, const std::vector<std::string>& others) {
  return std::ranges::any_of(some, [&others](const std::string& name) {
    const bool is_wildcard = name.starts_with("*");
    return !name.empty() && !is_wildcard && std::ranges::count(others, name) != 0;
  });
}

bool is_named(const CertificateNames& names, const std::string& host) {
  const std::string name = normal_host(host);
  return !name.empty() && (std::ranges::count(names.dns, name) != 0 ||
                           std::ranges::count(names.addresses, name) != 0);
}

}  // namespace

std::string CertificateNames::to_string() const {
  std::string text;
  const auto add = [&text](std::string_view kind, const std::string& name) {
    if (!name.empty()) text += (text.empty() ? "" : ", ") + std::string(kind) + " " + name;
  };
  for (const std::string& name : dns) add("DNS", name);
  for (const std::string& address : addresses) add("IP", address);
  for (const std::string& uri : uris) add("URI", uri);
  add("CN", common_name);
  return text.empty() ? "no names" : clean_text(std::move(text));
}

std::string format_time(std::time_t time) {
  std::tm parts{};
  std::array<char, 32> text{};
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &parts));
  return text.data();
}

Result<CertificateNames> certificate_names(const std::string& pem) {
  const std::vector<Certificate> chain = parse_certificates(pem);
  if (chain.empty()) return invalid_argument("this is no certificate in PEM");
  return names_of(chain.front().get());
}

Result<Certificates> check_certificates(const CertificateFiles& files, CertificateUse use,
                                        const std::string& directory) {
  const std::vector<Certificate> authorities = parse_certificates(files.ca);
  if (authorities.empty())
    return failed_precondition(directory + "/ca.crt holds no certificates in PEM" + kDocs);
  Certificates checked{.files = files};
  if (use == CertificateUse::client && files.chain.empty()) return checked;
  const std::vector<Certificate> chain = parse_certificates(files.chain);
  const std::string path = directory + "/tls.crt";
  if (chain.empty()) return failed_precondition(path + " holds no certificates in PEM" + kDocs);
  checked.names = names_of(chain.front().get());
  checked.expires = time_of(X509_get0_notAfter(chain.front().get()));
  const std::time_t begins = time_of(X509_get0_notBefore(chain.front().get()));
  checked.renewal = checked.expires - (checked.expires - begins) / 10;
  if (use == CertificateUse::client && files.key.empty()) return checked;
  Status status = check_key(files.key, chain.front().get(), directory);
  if (status.ok()) status = check_chain(chain, authorities, use, path);
  if (!status.ok()) return status;
  return checked;
}

bool names_server(const CertificateNames& names, const std::string& host,
                  const CertificateNames& own) {
  return is_named(names, host) || have_common(names.dns, own.dns) ||
         have_common(names.addresses, own.addresses) ||
         !end_of_sibling(names.spiffe_id, own.spiffe_id).empty();
}

bool names_host(const CertificateNames& names, const std::string& host,
                const CertificateNames& own) {
  if (is_named(names, host)) return true;
  const std::string_view end = end_of_sibling(names.spiffe_id, own.spiffe_id);
  return !end.empty() && (end == host || names.spiffe_id == own.spiffe_id);
}

bool names_admin(const CertificateNames& names, const std::string& admin,
                 const CertificateNames& own) {
  if (admin.empty()) return false;
  return names.common_name == admin || std::ranges::count(names.dns, lower(admin)) != 0 ||
         names.spiffe_id == admin || end_of_sibling(names.spiffe_id, own.spiffe_id) == admin;
}

}  // namespace tutti
