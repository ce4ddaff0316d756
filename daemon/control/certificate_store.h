// The certificates in a directory, read again when they change.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/control/certificates.h"

namespace tutti {

// The files lie in the directory, or in the one that its link ..data names, as Kubernetes lays them
// out: there all three are exchanged at once. Thread-safe.
class CertificateStore {
 public:
  using Warn = std::function<void(const std::string&)>;

  // Reads the files. NOT_FOUND: one is missing, or cannot be read; FAILED_PRECONDITION: the key is
  // open to other users, or check_certificates() refuses them.
  static Result<std::shared_ptr<CertificateStore>> open(const std::string& directory,
                                                        CertificateUse use, Warn warn);

  // Reads the files again and returns the newest that have passed the checks. Files that do not
  // pass, and a server's certificate that is to be renewed or has expired, cause one warning each.
  std::shared_ptr<const Certificates> current();

  const std::string& directory() const { return directory_; }

 private:
  CertificateStore(std::string directory, CertificateUse use, Warn warn)
      : directory_(std::move(directory)), use_(use), warn_(std::move(warn)) {}
  Result<CertificateFiles> read() const;
  Status renew();
  std::string overdue() const;
  void warn_once(const std::string& text);  // "": all is well.

  const std::string directory_;
  const CertificateUse use_;
  const Warn warn_;
  std::mutex mutex_;
  std::shared_ptr<const Certificates> current_;
  std::string warned_;  // The last warning, until all is well again.
};

// Writes what is public, ca.crt and tls.crt, into `directory`, for processes that cannot read the
// key. Each file changes at once.
Status publish_certificates(const CertificateFiles& files, const std::string& directory);

}  // namespace tutti
