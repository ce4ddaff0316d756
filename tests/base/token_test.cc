// Tokens from files and from the environment.
#include "daemon/base/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

class TokenFile : public testing::Test {
 protected:
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
  }
  void expect_refused(Code code, const std::string& part) const {
    const Status status = read_token_file(path_).status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(path_), std::string::npos) << status.message();
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "token";
};

TEST_F(TokenFile, TheFirstWordIsTheTokenButForComments) {
  for (const char* text : {"sesame", "sesame\n", "sesame\nand more\n", "sesame role=admin # x\n",
                           "# whose\n\n  sesame\r\n"}) {
    write(text);
    const Result<std::string> token = read_token_file(path_);
    ASSERT_TRUE(token.ok()) << token.status().to_string();
    EXPECT_EQ(*token, "sesame");
  }
  write(std::string(1024, 'x'));
  EXPECT_EQ(read_token_file(path_).status().to_string(), "OK");
}

TEST_F(TokenFile, OneThatOthersCanReadOrItsGroupCanWriteIsRefused) {
  for (const mode_t mode : {0604, 0602, 0601, 0620, 0666}) {
    write("sesame", mode);
    expect_refused(Code::failed_precondition, "run: chmod 600 " + path_);
  }
  for (const mode_t mode : {0600, 0400, 0440, 0640}) {
    write("sesame", mode);
    EXPECT_EQ(read_token_file(path_).status().to_string(), "OK") << mode;
  }
}

TEST_F(TokenFile, OneOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs to be root";
  write("sesame");
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  expect_refused(Code::failed_precondition, "belongs to user 65534");
}

TEST_F(TokenFile, WhatHoldsNoTokenIsRefused) {
  for (const std::string& text : {std::string(), std::string("# none\n"), std::string(1025, 'x')}) {
    write(text);
    expect_refused(Code::failed_precondition, "it may have 1 to 1024 bytes");
  }
  write(std::string((64 << 10) + 1, '\n'));
  expect_refused(Code::failed_precondition, "has more than 65536 bytes");
  std::filesystem::remove(path_);
  expect_refused(Code::not_found, "cannot be read: No such file");
  std::filesystem::create_directory(path_);
  expect_refused(Code::failed_precondition, "is no file");
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  expect_refused(Code::failed_precondition, "is no file");
}

TEST_F(TokenFile, TheEnvironmentNamesATokenOrAFile) {
  EXPECT_EQ(*token_of_environment(), "");
  write("of-a-file\n");
  const Variable file("TUTTI_TOKEN_FILE", path_);
  EXPECT_EQ(*token_of_environment(), "of-a-file");
  const Variable token("TUTTI_TOKEN", "sesame");
  EXPECT_EQ(*token_of_environment(), "sesame");
  const Variable empty("TUTTI_TOKEN", "");
  const Variable none("TUTTI_TOKEN_FILE", "/no/such/file");
  EXPECT_EQ(token_of_environment().status().code(), Code::not_found);
}

}  // namespace
}  // namespace tutti
