#include "daemon/control/certificate_store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "daemon/base/fd.h"
#include "daemon/base/token.h"
#include "daemon/control/tls_files.h"

namespace tutti {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr mode_t kPublicMode = 0644;
constexpr mode_t kPublicDirectoryMode = 0755;

// One state of the directory, even if it, or its link ..data, is exchanged while files are read.
class Snapshot {
 public:
  explicit Snapshot(const std::string& path)
      : path_(path), directory_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (!directory_.valid()) obstacle_ = errno;
    const int data = openat(directory_.get(), "..data", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (data >= 0) directory_.reset(data);
  }

  Result<std::string> read(const char* name) const {
    const Fd file = open(name);
    return file.valid() ? read_all(file.get(), name) : unreadable(name);
  }
  Result<std::string> read_secret(const char* name) const {
    const Fd file = open(name);
    if (!file.valid()) return unreadable(name);
    const Status checked = check_secret(file.get(), "the key", path_ + "/" + name);
    if (!checked.ok()) return checked;
    return read_all(file.get(), name);
  }
  bool is_readable(const char* name) const { return open(name).valid(); }

 private:
  Fd open(const char* name) const {
    return Fd(openat(directory_.get(), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  }
  Status unreadable(const char* name) const {
    const int why = obstacle_ != 0 ? obstacle_ : errno;
    return not_found(path_ + "/" + name + " cannot be read: " + std::strerror(why) +
                     "; put tls.crt, tls.key and ca.crt there, choose another tls_dir, or set tls "
                     "= off");
  }
  Result<std::string> read_all(int file, const char* name) const {
    std::string text;
    std::array<char, 16'384> bytes;
    ssize_t count = 0;
    while (text.size() <= kFileBytesMax && (count = ::read(file, bytes.data(), bytes.size())) > 0)
      text.append(bytes.data(), static_cast<size_t>(count));
    if (count < 0) return unreadable(name);
    if (text.size() <= kFileBytesMax) return text;
    return failed_precondition(path_ + "/" + name + " is larger than " +
                               std::to_string(kFileBytesMax) + " bytes; is it the right file?");
  }

  const std::string& path_;
  Fd directory_;
  int obstacle_ = 0;  // errno of opening it; 0: it is open.
};

Status write_public(const std::string& path, const std::string& text) {
  const std::string next = path + ".new";
  (void)unlink(next.c_str());
  const Fd file(::open(next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kPublicMode));
  if (!file.valid()) return errno_status("cannot make " + next);
  // The umask may have closed it.
  if (fchmod(file.get(), kPublicMode) != 0 ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(next.c_str(), path.c_str()) != 0)
    return errno_status("cannot write " + path);
  return {};
}

void log_warning(const std::string& text) { spdlog::warn("{}", text); }

}  // namespace

Result<std::shared_ptr<CertificateStore>> CertificateStore::open(const std::string& directory,
                                                                 CertificateUse use, Warn warn) {
  std::shared_ptr<CertificateStore> store(new CertificateStore(directory, use, std::move(warn)));
  const Status status = store->renew();
  if (!status.ok()) return status;
  return store;
}

std::shared_ptr<const Certificates> CertificateStore::current() {
  const std::lock_guard lock(mutex_);
  const Status renewed = renew();
  warn_once(renewed.ok() ? overdue()
                         : renewed.message() + "; the certificates read before stay in use");
  return current_;
}

// Why the certificate should be renewed, or "".
std::string CertificateStore::overdue() const {
  const std::time_t now = std::time(nullptr);
  if (use_ == CertificateUse::client || now < current_->renewal) return {};
  const std::string which = "the certificate " + directory_ + "/tls.crt ";
  if (now < current_->expires)
    return which + "expires at " + format_time(current_->expires) + " and is not renewed yet";
  return which + "has expired, so that others refuse it; renew it";
}

Status CertificateStore::renew() {
  Result<CertificateFiles> files = read();
  if (!files.ok()) return files.status();
  if (current_ != nullptr && current_->files == *files) return {};
  Result<Certificates> checked = check_certificates(*files, use_, directory_);
  if (!checked.ok()) return checked.status();
  current_ = std::make_shared<const Certificates>(*std::move(checked));
  return {};
}

Result<CertificateFiles> CertificateStore::read() const {
  const Snapshot snapshot(directory_);
  CertificateFiles files;
  Result<std::string> text = snapshot.read("ca.crt");
  if (!text.ok()) return text.status();
  files.ca = *std::move(text);
  if (use_ == CertificateUse::client && !snapshot.is_readable("tls.crt")) return files;
  text = snapshot.read("tls.crt");
  if (!text.ok()) return text.status();
  files.chain = *std::move(text);
  if (use_ == CertificateUse::client && !snapshot.is_readable("tls.key")) return files;
  text = snapshot.read_secret("tls.key");
  if (!text.ok()) return text.status();
  files.key = *std::move(text);
  return files;
}

void CertificateStore::warn_once(const std::string& text) {
  if (warned_ == text) return;
  warned_ = text;
  if (!text.empty()) warn_(text);
}

Result<Tls> open_agent_tls(const std::string& directory) {
  return CertificateStore::open(directory, CertificateUse::server_and_client, log_warning);
}
Result<Tls> open_client_tls(const std::string& directory) {
  return CertificateStore::open(directory, CertificateUse::client, log_warning);
}

Result<CertificateSummary> look_at_certificates(const std::string& directory,
                                                const std::string& host) {
  const auto store = CertificateStore::open(directory, CertificateUse::server_and_client,
                                            [](const std::string&) {});
  if (!store.ok()) return store.status();
  const Certificates certificates = *(*store)->current();
  return CertificateSummary{certificates.names.to_string(),
                            names_host(certificates.names, host, certificates.names),
                            certificates.renewal, certificates.expires};
}

Status publish_certificates(const CertificateFiles& files, const std::string& directory) {
  if (mkdir(directory.c_str(), kPublicDirectoryMode) != 0 && errno != EEXIST)
    return errno_status("cannot make " + directory);
  if (chmod(directory.c_str(), kPublicDirectoryMode) != 0)
    return errno_status("cannot open " + directory + " to other users");
  Status status = write_public(directory + "/tls.crt", files.chain);
  return status.ok() ? write_public(directory + "/ca.crt", files.ca) : status;
}

}  // namespace tutti
