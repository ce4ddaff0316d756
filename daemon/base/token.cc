#include "daemon/base/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "daemon/base/fd.h"
#include "daemon/base/program.h"

namespace tutti {
namespace {

constexpr size_t kFileBytesMax = 64 << 10;
constexpr mode_t kTooOpen = S_IWGRP | S_IRWXO;

// For the first line that is not a comment.
std::string first_word(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::string word;
    if (std::istringstream(line) >> word && word[0] != '#') return word;
  }
  return {};
}

}  // namespace

Status check_secret(int file, const std::string& what, const std::string& path) {
  struct stat info {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
    return failed_precondition(what + " " + path + " is no file");
  if (info.st_uid != geteuid() && info.st_uid != 0)
    return failed_precondition(what + " " + path + " belongs to user " +
                               std::to_string(info.st_uid) + "; give it to root or to this user");
  if ((info.st_mode & kTooOpen) == 0) return {};
  return failed_precondition(what + " " + path + " is open to other users; run: chmod 600 " + path +
                             " (640 where its group must read it; Kubernetes: defaultMode: 0440)");
}

Result<std::string> read_secret_file(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid())
    return not_found("the secret file " + path + " cannot be read: " + std::strerror(errno));
  if (Status checked = check_secret(file.get(), "the secret file", path); !checked.ok())
    return checked;
  std::string bytes(kFileBytesMax + 1, '\0');
  const ssize_t count = read(file.get(), bytes.data(), bytes.size());
  if (count < 0)
    return not_found("the secret file " + path + " cannot be read: " + std::strerror(errno));
  bytes.resize(static_cast<size_t>(count));
  if (bytes.size() <= kFileBytesMax) return bytes;
  return failed_precondition("the secret file " + path + " has more than " +
                             std::to_string(kFileBytesMax) + " bytes");
}

Result<std::string> read_token_file(const std::string& path) {
  const Result<std::string> text = read_secret_file(path);
  if (!text.ok()) return text;
  const std::string token = first_word(*text);
  if (!token.empty() && token.size() <= kTokenBytesMax) return token;
  return failed_precondition("the secret file " + path + " begins with " +
                             (token.empty() ? "no token" : "a token that is too long") +
                             "; it may have 1 to " + std::to_string(kTokenBytesMax) + " bytes");
}

Result<std::string> token_of_environment() {
  if (std::string token = variable("TUTTI_TOKEN"); !token.empty()) return token;
  const std::string path = variable("TUTTI_TOKEN_FILE");
  return path.empty() ? path : read_token_file(path);
}

std::string random_hex(size_t bytes) {
  std::string random(bytes, '\0');
  require(getrandom(random.data(), bytes, 0) == static_cast<ssize_t>(bytes),
          "the kernel gives no random bytes");
  std::string digits;
  for (const unsigned char byte : random) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

}  // namespace tutti
