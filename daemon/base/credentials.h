// What an agent knows of others: the tokens that they may show, and what each of them allows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

struct Token {
  std::string text;
  bool trainer = false;    // Its bearer may join jobs.
  bool agent = false;      // Its bearer is an agent of this mesh.
  bool admin = false;      // Its bearer may administer from other hosts.
  std::string jobs = "*";  // Which jobs a trainer may join with it: a pattern as of the shell.
  std::string subject;     // Who its bearers are; a job belongs to a user and a subject.
};

// Reads lines "TOKEN [role=trainer,agent,admin] [jobs=PATTERN] [subject=NAME]"; # begins a comment.
// role= must be there. `name` is the file's, for messages.
// INVALID_ARGUMENT names the line and what is wrong with it, without the token.
Result<std::vector<Token>> parse_tokens(std::string_view lines, const std::string& name);
// The token of a setting, which has no roles: for trainers and agents.
Token plain_token(std::string text);

// Compares in constant time.
bool same_token(std::string_view expected, std::string_view shown);
// Returns the token that was shown, or null.
const Token* find_token(const std::vector<Token>& tokens, std::string_view shown);

struct Credentials {
  std::vector<Token> tokens;
  std::string own_key;         // Known to this agent alone, and to those after it on this host.
  bool trust_network = false;  // Anyone who reaches the control plane is an agent of this mesh.
  // tls = require: a token for agents counts beside a host's certificate only. It signs nothing,
  // because a signature travels without the certificate; own_key does.
  bool certified_hosts = false;

  // What this agent shows to other agents: the first token for agents, else its own key.
  const std::string& agent_token() const;
  bool has_agent_token() const;
  // The keys whose signatures it accepts where hosts are not certified.
  std::vector<std::string> agent_keys() const;
};

// Returns the subject of a trainer that shows `shown` to join `job`. Every trainer is admitted, as
// subject "", if no token is for trainers. UNAUTHENTICATED: it is no token for trainers.
// PERMISSION_DENIED: it is for other jobs. `host` is the agent's, for messages.
Result<std::string> admit_trainer(const Credentials& credentials, std::string_view shown,
                                  const std::string& job, const std::string& host);

}  // namespace tutti
