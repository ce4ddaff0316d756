#include "daemon/base/credentials.h"

#include <fnmatch.h>

#include <algorithm>

#include "daemon/base/foreign_text.h"
#include "daemon/base/text.h"
#include "daemon/base/token.h"

namespace tutti {
namespace {

constexpr size_t kSubjectBytesMax = 128;
constexpr std::string_view kBlanks = " \t\r";

// Up to a word that begins with #.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = line.find_first_not_of(kBlanks); at != std::string_view::npos;
       at = line.find_first_not_of(kBlanks, at)) {
    if (line[at] == '#') break;
    const size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

Status add_role(Token& token, std::string_view role) {
  if (role == "trainer")
    token.trainer = true;
  else if (role == "agent")
    token.agent = true;
  else if (role == "admin")
    token.admin = true;
  else
    return invalid_argument("'" + std::string(role) +
                            "' is no role; expected trainer, agent or admin");
  return {};
}

Status add_roles(Token& token, std::string_view roles) {
  Status status;
  for (const std::string& role : split(roles, ','))
    if (status.ok()) status = add_role(token, role);
  return status;
}

Status add_attribute(Token& token, std::string_view word) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
  if (value.empty() || (name != "role" && name != "jobs" && name != "subject"))
    return invalid_argument("expected role=, jobs= or subject= with a value after the token");
  if (name == "role") return add_roles(token, value);
  if (name == "subject")
    if (Status named = check_name("the subject", value, kSubjectBytesMax); !named.ok())
      return named;
  (name == "jobs" ? token.jobs : token.subject) = value;
  return {};
}

Result<Token> parse_line(const std::vector<std::string_view>& words) {
  if (words[0].size() > kTokenBytesMax)
    return invalid_argument("the token is longer than " + std::to_string(kTokenBytesMax) +
                            " bytes");
  Token token{.text = std::string(words[0])};
  for (size_t i = 1; i < words.size(); ++i)
    if (Status status = add_attribute(token, words[i]); !status.ok()) return status;
  if (!token.trainer && !token.agent && !token.admin)
    return invalid_argument("say what the token is for: role=trainer, role=agent or role=admin");
  const bool restricted = token.jobs != "*" || !token.subject.empty();
  if (restricted && !token.trainer)
    return invalid_argument("jobs= and subject= are for trainers, which this token is not for");
  if (restricted && (token.agent || token.admin))
    return invalid_argument(
        "an agent's or administrator's token has no jobs= and no subject=; "
        "add role=trainer");
  return token;
}

}  // namespace

Result<std::vector<Token>> parse_tokens(std::string_view lines, const std::string& name) {
  std::vector<Token> tokens;
  int number = 0;
  for (const std::string& line : split(lines, '\n')) {
    ++number;
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) continue;
    Result<Token> token = parse_line(words);
    Status status = token.status();
    if (token.ok() && find_token(tokens, token->text) != nullptr)
      status = invalid_argument("the token stands in an earlier line, too");
    if (!status.ok())
      return Status(status.code(), name + ":" + std::to_string(number) + ": " + status.message());
    tokens.push_back(*std::move(token));
  }
  if (tokens.empty()) return invalid_argument(name + " holds no token; write one in a line");
  return tokens;
}

Token plain_token(std::string text) {
  return {.text = std::move(text), .trainer = true, .agent = true};
}

bool same_token(std::string_view expected, std::string_view shown) {
  unsigned char difference = expected.size() == shown.size() ? 0 : 1;
  for (size_t i = 0; i < shown.size(); ++i)
    difference |= static_cast<unsigned char>(shown[i] ^ (i < expected.size() ? expected[i] : 0));
  return difference == 0;
}

const Token* find_token(const std::vector<Token>& tokens, std::string_view shown) {
  const Token* found = nullptr;
  for (const Token& token : tokens)  // All of them, so that the time tells nothing.
    if (same_token(token.text, shown)) found = &token;
  return found;
}

const std::string& Credentials::agent_token() const {
  const auto found = std::ranges::find_if(tokens, &Token::agent);
  return found != tokens.end() ? found->text : own_key;
}

bool Credentials::has_agent_token() const { return std::ranges::any_of(tokens, &Token::agent); }

std::vector<std::string> Credentials::agent_keys() const {
  std::vector<std::string> keys;
  for (const Token& token : tokens)
    if (token.agent) keys.push_back(token.text);
  if (!own_key.empty()) keys.push_back(own_key);
  return keys;
}

Result<std::string> admit_trainer(const Credentials& credentials, std::string_view shown,
                                  const std::string& job, const std::string& host) {
  if (std::ranges::none_of(credentials.tokens, &Token::trainer)) return std::string();
  const Token* token = find_token(credentials.tokens, shown);
  if (token == nullptr || !token->trainer)
    return unauthenticated(
        std::string(shown.empty() ? "a token is needed" : "the token is wrong") +
        "; set TUTTI_TOKEN or TUTTI_TOKEN_FILE to one for trainers of tuttid on host " + host);
  if (fnmatch(token->jobs.c_str(), job.c_str(), 0) != 0)
    return permission_denied("the token is for jobs called " + token->jobs + ", not for \"" + job +
                             "\"; choose such a name, or ask for another token");
  return token->subject;
}

}  // namespace tutti
