// The check before a call of all ranks: agreement.h.
#include "client/cross_device/agreement.h"

#include <algorithm>

namespace tutti::cross_device {
namespace {

constexpr char kLineEnd = '\n';
constexpr int64_t kLengthMax = int64_t{1} << 28;  // Of a text, in bytes; more is a fault.

// What each rank reports of its text first.
struct Summary {
  int64_t hash = 0;
  int64_t length = 0;
  int64_t refused = 0;  // The code of the rank's error.
  int64_t number = 0;
  explicit Summary(const std::vector<int64_t>& numbers)
      : hash(numbers[0]), length(numbers[1]), refused(numbers[2]), number(numbers[3]) {}
};

// FNV-1a, 64 bits: the same on every machine, unlike std::hash.
int64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return static_cast<int64_t>(hash);
}

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

Status too_long(int64_t rank, int64_t length) {
  return invalid_argument("rank " + std::to_string(rank) + " describes its call in " +
                              std::to_string(length) + " bytes, but ranks compare at most " +
                              std::to_string(kLengthMax) + "; pass fewer values in one call",
                          {static_cast<int>(rank), {}});
}

// Every rank's text, by rank.
Result<std::vector<std::string>> gather_texts(const Communicator& communicator,
                                              const std::string& text,
                                              const std::vector<Summary>& summaries) {
  const auto longest = std::ranges::max_element(summaries, {}, &Summary::length);
  if (longest->length > kLengthMax) return too_long(longest - summaries.begin(), longest->length);
  const auto width = static_cast<size_t>(longest->length);
  std::string padded = text;
  padded.resize(width);
  std::string all(width * summaries.size(), '\0');
  if (const Status done = communicator.all_gather(padded.data(), all.data(), width); !done.ok())
    return done;
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < summaries.size(); ++rank)
    texts.push_back(all.substr(rank * width,
                               static_cast<size_t>(std::max<int64_t>(summaries[rank].length, 0))));
  return texts;
}

std::string line_of(const Description& lines, size_t index) {
  return index < lines.size() ? "'" + lines[index] + "'" : "nothing";
}

// Names the first line on which the rank differs from rank 0.
Status disagreement(const Description& first, const Description& other, size_t rank) {
  const auto [here, there] = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
  const auto index = static_cast<size_t>(here - first.begin());
  return invalid_argument("the ranks disagree about the call: rank 0 has " + line_of(first, index) +
                          ", rank " + std::to_string(rank) + " has " + line_of(other, index) +
                          "; all ranks must make the same calls in the same order");
}

// Why the ranks cannot make the call. The same on every rank.
Status explain(const std::vector<Summary>& summaries, const std::vector<std::string>& texts) {
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (summaries[rank].refused != 0)
      return {code_of(static_cast<int>(summaries[rank].refused)),
              "rank " + std::to_string(rank) + " refused the call: " + texts[rank],
              {static_cast<int>(rank), {}}};
  for (size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0]) return disagreement(split(texts[0]), split(texts[rank]), rank);
  return internal_error("the ranks' descriptions of the call changed on the way");
}

}  // namespace

Result<std::vector<int64_t>> agree(const Communicator& communicator,
                                   const Result<Description>& description, int64_t number) {
  const std::string text = description.ok() ? join(*description) : description.status().message();
  const auto refused = static_cast<int64_t>(description.status().code());
  const auto gathered =
      communicator.all_gather({hash_of(text), static_cast<int64_t>(text.size()), refused, number});
  if (!gathered.ok()) return description.ok() ? gathered.status() : description.status();
  const std::vector<Summary> summaries(gathered->begin(), gathered->end());
  const auto agrees = [&](const Summary& summary) {
    return summary.refused == 0 && summary.hash == summaries[0].hash &&
           summary.length == summaries[0].length;
  };
  if (std::ranges::all_of(summaries, agrees)) {
    std::vector<int64_t> numbers;
    for (const Summary& summary : summaries) numbers.push_back(summary.number);
    return numbers;
  }
  const auto texts = gather_texts(communicator, text, summaries);
  if (!description.ok()) return description.status();
  if (!texts.ok()) return texts.status();
  return explain(summaries, *texts);
}

Status confirm(const Communicator& communicator, const Status& own) {
  return agree(communicator, own.ok() ? Result<Description>(Description()) : own).status();
}

}  // namespace tutti::cross_device
