// The check before a call of all ranks: agreement.h.
#include "client/faces/base/agreement.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "daemon/base/hash.h"
#include "daemon/kernel/kernel.h"

namespace tutti::faces {
namespace {

constexpr char kLineEnd = '\n';
constexpr int64_t kLengthMax = int64_t{1} << 28;  // Of a text, in bytes; more is a fault.
constexpr size_t kQuoteBytes = 400;               // What of a line a message quotes.

// What each rank says about its text first.
struct Summary {
  int64_t hash = 0;
  int64_t length = 0;
  int64_t refused = 0;  // The code of the rank's error.
  int64_t number = 0;
  explicit Summary(const std::vector<int64_t>& numbers)
      : hash(numbers[0]), length(numbers[1]), refused(numbers[2]), number(numbers[3]) {}
};

std::string join(const Description& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + kLineEnd;
  return text;
}

Description split(const std::string& text) {
  Description lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(kLineEnd, begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

Status too_long(size_t rank, int64_t length) {
  return invalid_argument("rank " + std::to_string(rank) + " describes its call in " +
                              std::to_string(length) + " bytes, but ranks compare at most " +
                              std::to_string(kLengthMax) + "; pass fewer values in one call",
                          {static_cast<int>(rank), {}});
}

Result<std::vector<std::string>> gather_texts(const Communicator& communicator,
                                              const std::string& own,
                                              const std::vector<int64_t>& lengths) {
  const auto longest = std::ranges::max_element(lengths);
  if (*longest > kLengthMax)
    return too_long(static_cast<size_t>(longest - lengths.begin()), *longest);
  BytesGather gather({lengths.begin(), lengths.end()});
  copy_bytes(gather.own(), own.data(), own.size());
  if (const Status done = gather.run(communicator); !done.ok()) return done;
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < lengths.size(); ++rank)
    texts.emplace_back(reinterpret_cast<const char*>(gather.of(rank)),
                       static_cast<size_t>(lengths[rank]));
  return texts;
}

// The line, or of a long one the part around its byte `at`.
std::string quote(const std::string& line, size_t at) {
  if (line.size() <= kQuoteBytes) return "'" + line + "'";
  const size_t begin = at - std::min(at, kQuoteBytes / 4);
  return "'" + std::string(begin == 0 ? "" : "... ") + line.substr(begin, kQuoteBytes) +
         (begin + kQuoteBytes < line.size() ? " ...'" : "'");
}

std::string line_of(const Description& lines, size_t index, size_t at) {
  return index < lines.size() ? quote(lines[index], at) : "nothing";
}

// Where the lines at `index` differ.
size_t differing_byte(const Description& first, const Description& other, size_t index) {
  if (index >= first.size() || index >= other.size()) return 0;
  const auto differ = std::ranges::mismatch(first[index], other[index]);
  return static_cast<size_t>(differ.in1 - first[index].begin());
}

// Why the ranks cannot make the call. The same on every rank.
Status explain(const std::vector<Summary>& summaries, const std::vector<std::string>& texts) {
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (summaries[rank].refused != 0)
      return {code_of(static_cast<int>(summaries[rank].refused)),
              "rank " + std::to_string(rank) + " refused the call: " + texts[rank],
              {static_cast<int>(rank), {}}};
  for (size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0])
      return invalid_argument(
          disagreement("rank", 0, split(texts[0]), static_cast<int64_t>(rank), split(texts[rank])));
  return internal_error("the ranks' descriptions of the call changed on the way");
}

}  // namespace

std::string disagreement(const std::string& who, int64_t first, const Description& its,
                         int64_t other, const Description& others) {
  const auto line = std::ranges::mismatch(its, others);
  const auto index = static_cast<size_t>(line.in1 - its.begin());
  const size_t at = differing_byte(its, others, index);
  return "the " + who + "s disagree about the call: " + who + " " + std::to_string(first) +
         " has " + line_of(its, index, at) + ", " + who + " " + std::to_string(other) + " has " +
         line_of(others, index, at) + "; all " + who +
         "s must make the same calls in the same order";
}

Result<std::vector<std::string>> gather_texts(const Communicator& communicator,
                                              const std::string& own) {
  const auto all = communicator.all_gather(std::vector{static_cast<int64_t>(own.size())});
  if (!all.ok()) return all.status();
  std::vector<int64_t> lengths;
  for (const std::vector<int64_t>& length : *all) lengths.push_back(length[0]);
  return gather_texts(communicator, own, lengths);
}

Result<std::vector<int64_t>> agree(const Communicator& communicator,
                                   const Result<Description>& description, int64_t number) {
  const std::string text = description.ok() ? join(*description) : description.status().message();
  const auto refused = static_cast<int64_t>(description.status().code());
  const auto gathered = communicator.all_gather(
      {static_cast<int64_t>(fnv1a(text)), static_cast<int64_t>(text.size()), refused, number});
  if (!gathered.ok()) return description.ok() ? gathered.status() : description.status();
  const std::vector<Summary> summaries(gathered->begin(), gathered->end());
  std::vector<int64_t> numbers;
  std::vector<int64_t> lengths;
  bool agrees = true;
  for (const Summary& summary : summaries) {
    numbers.push_back(summary.number);
    lengths.push_back(summary.length);
    agrees = agrees && summary.refused == 0 && summary.hash == summaries[0].hash &&
             summary.length == summaries[0].length;
  }
  if (agrees) return numbers;
  const auto texts = gather_texts(communicator, text, lengths);
  if (!description.ok()) return description.status();
  if (!texts.ok()) return texts.status();
  return explain(summaries, *texts);
}

Status confirm(const Communicator& communicator, const Status& own) {
  return agree(communicator, own.ok() ? Result<Description>(Description()) : own).status();
}

Status refuse(tutti_group* group, const Status& why) { return confirm(Communicator(group), why); }

std::string job_name(const std::string& prefix, std::string_view text) {
  std::array<char, 17> digits = {};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(fnv1a(text)));
  return prefix + digits.data();
}

}  // namespace tutti::faces
