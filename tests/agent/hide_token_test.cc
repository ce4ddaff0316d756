// tuttid's token is not to be seen from outside.
#include <gmock/gmock.h>

#include "tests/agent/harness.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;

struct AgentToken : AgentTest {
  static std::string arguments(pid_t pid) {
    return text_of("/proc/" + std::to_string(pid) + "/cmdline");
  }
  static std::string environment_of(pid_t pid) {
    return text_of("/proc/" + std::to_string(pid) + "/environ");
  }
  void show(const std::string& token, tutti_code answer) {
    v1::Hello hello = hello_of("demo");
    hello.set_token(token);
    EXPECT_EQ(join(hello).code(), answer);
  }
};

TEST_F(AgentToken, IsNotSeenInItsArguments) {
  const pid_t agent = start({"--token=sesame", "--log-level=info"});
  EXPECT_THAT(arguments(agent), HasSubstr(std::string("--token=xxxxxx\0--log-level=info", 31)));
  show("sesame", TUTTI_OK);
  show("xxxxxx", TUTTI_UNAUTHENTICATED);
}

TEST_F(AgentToken, IsNotSeenInAnArgumentOfItsOwn) {
  const pid_t agent = start({"--token", "sesame", "--log-level=info"});
  EXPECT_THAT(arguments(agent), HasSubstr(std::string("--token\0xxxxxx\0--log-level=info", 31)));
  show("sesame", TUTTI_OK);
}

TEST_F(AgentToken, IsNotSeenInItsEnvironment) {
  environment = {{"TUTTI_TOKEN", "sesame"}, {"TUTTI_LOG_LEVEL", "info"}};
  const pid_t agent = start();
  EXPECT_THAT(environment_of(agent), HasSubstr("TUTTI_LOG_LEVEL=info"));
  EXPECT_THAT(environment_of(agent), Not(HasSubstr("sesame")));
  show("sesame", TUTTI_OK);
  show("xxxxxx", TUTTI_UNAUTHENTICATED);
}

}  // namespace
}  // namespace tutti
