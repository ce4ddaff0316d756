#include "client/distribute/agreement.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "daemon/kernel/kernel.h"

namespace tutti::distribute {
namespace {

constexpr size_t kTextBytesMax = 65'536;  // What of a text other ranks see at most.
constexpr size_t kQuoteBytes = 400;       // What of it a message quotes.

std::string rank_text(size_t rank) { return "rank " + std::to_string(rank); }

// The text, or of a long one the part around `at`.
std::string quote(const std::string& text, size_t at) {
  if (text.size() <= kQuoteBytes) return text;
  const size_t blank = text.rfind(' ', std::min(at, text.size() - 1));
  const size_t word = blank == std::string::npos || at - blank > kQuoteBytes / 2 ? at : blank + 1;
  const size_t end = std::min(text.size(), word + kQuoteBytes / 2);
  const std::string head = text.substr(0, std::min(word, text.find(" of ")));
  return (word == 0 ? "" : head + " ... ") + text.substr(word, end - word) +
         (end == text.size() ? "" : " ...");
}

}  // namespace

int64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<int64_t>(hash);
}

Result<std::vector<std::string>> all_gather_texts(tutti_group* group, const std::string& own,
                                                  const CallOptions& options) {
  const std::array<int64_t, 1> length = {static_cast<int64_t>(std::min(own.size(), kTextBytesMax))};
  const Result<std::vector<int64_t>> lengths = all_gather(group, length, options);
  if (!lengths.ok()) return lengths.status();
  const auto slot = static_cast<size_t>(*std::ranges::max_element(*lengths));
  std::vector<std::byte> sent(slot);
  copy_bytes(sent.data(), own.data(), static_cast<size_t>(length[0]));
  const Result<std::vector<std::byte>> all = all_gather(group, sent, options);
  if (!all.ok()) return all.status();
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < lengths->size(); ++rank)
    texts.emplace_back(reinterpret_cast<const char*>(all->data()) + rank * slot,
                       static_cast<size_t>((*lengths)[rank]));
  return texts;
}

std::string quote_both(const std::string& who, const std::string& text, const std::string& whom,
                       const std::string& other) {
  const auto at = static_cast<size_t>(std::ranges::mismatch(text, other).in1 - text.begin());
  return who + " calls " + quote(text, at) + ", " + whom + " calls " + quote(other, at);
}

Status agree(tutti_group* group, const Status& own, const std::string& text,
             const CallOptions& options) {
  if (group == nullptr) return own;
  const std::array<int64_t, 2> sent = {hash_of(text), static_cast<int64_t>(own.code())};
  const Result<std::vector<int64_t>> all = all_gather(group, sent, options);
  if (!all.ok()) return all.status();
  size_t failed = 0;  // The first rank with an error of its own, and the first that differs from 0.
  size_t differs = 0;
  const size_t ranks = all->size() / 2;
  while (failed < ranks && (*all)[2 * failed + 1] == 0) ++failed;
  while (differs < ranks && (*all)[2 * differs] == (*all)[0]) ++differs;
  if (failed == ranks && differs == ranks) return {};
  const auto texts = all_gather_texts(group, own.ok() ? text : own.message(), options);
  if (!texts.ok()) return texts.status();
  if (failed < ranks)
    return {code_of(static_cast<int>((*all)[2 * failed + 1])),
            rank_text(failed) + ": " + (*texts)[failed],
            {static_cast<int>(failed), ""}};
  return invalid_argument(
      "the ranks differ: " +
      quote_both(rank_text(0), (*texts)[0], rank_text(differs), (*texts)[differs]) +
      "; call the same on every rank");
}

std::string job_name(const std::string& prefix, std::string_view text) {
  std::array<char, 17> digits = {};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(hash_of(text)));
  return prefix + digits.data();
}

}  // namespace tutti::distribute
