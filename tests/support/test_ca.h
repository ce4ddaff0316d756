// A certificate authority of a test, and directories as Kubernetes mounts its secrets.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tutti {

struct IssuedCertificate {
  std::string chain;  // PEM.
  std::string key;    // PEM.
};

struct CertificateRequest {
  std::string common_name;
  std::string names;  // Of subjectAltName: "DNS:b,IP:127.0.0.1,URI:spiffe://x/y"; or empty.
  std::string usages = "serverAuth,clientAuth";  // Of extendedKeyUsage; or empty.
  long begins_s = -3'600;                        // From now.
  long ends_s = 3'600;
};

class TestCa {
 public:
  explicit TestCa(const std::string& name);
  ~TestCa();
  std::string certificate() const;  // PEM.
  IssuedCertificate issue(const CertificateRequest& request) const;
  // An authority below this one. What it issues has it in its chain.
  TestCa intermediate(const std::string& name) const;

 private:
  struct Parts;
  explicit TestCa(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Puts the three files into `directory`, which is made if it is not there: into a directory of
// their own, to which the link ..data is turned at once. Keys have mode 0640.
void mount_secret(const std::string& directory, const IssuedCertificate& issued,
                  const std::string& ca);

}  // namespace tutti
