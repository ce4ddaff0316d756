// Heads of requests, good and bad.
#include "daemon/http/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

TEST(HttpRequestHead, IsReadUpToTheBlankLine) {
  const auto request = parse_request(
      "HEAD /metrics?name=x HTTP/1.1\r\nhost:node7:9464\r\nAccept: */*\r\n"
      "AUTHORIZATION: \t Bearer sesame \r\n\r\nHost: evil");
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->method, "HEAD");
  EXPECT_EQ(request->path, "/metrics");
  EXPECT_EQ(request->host, "node7:9464");
  EXPECT_EQ(request->authorization, "Bearer sesame");
}

TEST(HttpRequestHead, MayHaveNoHeaders) {
  const auto request = parse_request("GET /healthz HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(is_probe(*request));
  EXPECT_EQ(request->host, "");
}

TEST(HttpRequestHead, WhatIsNoneIsRefused) {
  const std::string get = "GET / HTTP/1.1\r\n";
  for (const std::string& head :
       {std::string(), std::string("GET"), std::string("GET /"), std::string("GET / HTTP/2.0"),
        std::string("GET  / HTTP/1.1"), std::string("GET / HTTP/1.1 "),
        std::string("GET http://a/ HTTP/1.1"), std::string("G\tT / HTTP/1.1"),
        std::string("GET /\n HTTP/1.1"), std::string("\r\nGET / HTTP/1.1"), get + "Host",
        get + ": a", get + "Host : a", get + " Host: a", get + "Host: a\nHost: b",
        get + "Host: a\r\nhost: b", get + "X: " + std::string(1, '\0')})
    EXPECT_EQ(parse_request(head + "\r\n\r\n").status().code(), Code::invalid_argument) << head;
}

}  // namespace
}  // namespace tutti
