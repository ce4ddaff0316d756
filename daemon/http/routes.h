// Which path shows what, and to whom. Pure, but for what the source does.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/http/http.h"

namespace tutti {

struct HttpRequest {
  std::string path;
  std::string authorization;  // Of the headers, as is `host`.
  std::string host;
  bool loopback = false;  // The server listens where this machine alone can reach it.
  std::string method = "GET";
};

struct HttpAnswer {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// /healthz and /readyz, which ask the source for its readiness alone.
bool is_probe(const HttpRequest& request);

// Answers GET, and HEAD, which gets the same without its body.
HttpAnswer answer_http(const HttpRequest& request, HttpSource& source);

// The token of "Bearer TOKEN", or the password of "Basic BASE64"; "" if there is none.
std::string token_of(std::string_view authorization);

// The page, whose script and style have this nonce.
std::string page(std::string_view nonce);

}  // namespace tutti
