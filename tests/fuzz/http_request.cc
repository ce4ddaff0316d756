// The head of an HTTP request: what is accepted has no line break and no blank where it could forge
// another line; what comes behind the head changes nothing.
#include "daemon/http/request.h"
#include "tests/fuzz/input.h"

namespace tutti {
namespace {

void check(const HttpRequest& request) {
  require(request.path.starts_with('/'), "a path begins at the root");
  require(request.path.find_first_of("? \r\n") == std::string::npos, "a path is one word");
  require(request.method.find_first_of(" \r\n") == std::string::npos, "a method is one word");
  for (const std::string& value : {request.host, request.authorization}) {
    require(value.find_first_of("\r\n") == std::string::npos, "a value is one line");
    require(value.empty() || (value.front() != ' ' && value.back() != ' '), "a value is trimmed");
  }
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti;
  const std::string_view bytes = fuzz::Input(data, size).rest();
  const Result<HttpRequest> request = parse_request(bytes);
  require(request.ok() || request.status().code() == Code::invalid_argument,
          "an error is the request's");
  if (request.ok()) check(*request);
  const std::string_view head = bytes.substr(0, bytes.find(kEndOfHead));
  require(parse_request(head).ok() == request.ok(), "what follows the head does not count");
  return 0;
}
