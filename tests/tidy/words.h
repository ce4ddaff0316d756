// Turns of phrase that no text of the repository has, because plain words say the same.
#pragma once

#include <cctype>

#include "tests/tidy/source.h"

namespace tutti::tidy {

struct Turn {
  std::string_view words;
  std::string_view instead;
};
constexpr Turn kTurns[] = {
    {"anew", "again"},
    {"likewise", "too, or: the same"},
    {"whoever", "the caller, or: those who"},
    {"mend", "fix"},
    {"mends", "fixes"},
    {"mended", "fixed"},
    {"heed", "apply"},
    {"heeds", "applies"},
    {"tells of", "reports"},
    {"be told", "learn, or: be asked to"},
    {"been told", "learnt, or: been asked to"},
    {"is told", "learns, or: is asked to"},
    {"are told", "learn, or: are asked to"},
    {"was told", "learnt, or: was asked to"},
    {"were told", "learnt, or: were asked to"},
    {"what is the matter", "what is wrong"},
};

inline bool is_upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
inline bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// A line without the marks before its text: blanks, those of comments, lists and quotes.
inline std::string_view prose_of(std::string_view line) {
  const size_t begin = line.find_first_not_of(" /*#\"|>-");
  return begin == std::string_view::npos ? std::string_view() : line.substr(begin);
}

// In small letters, with blanks between the words of a name.
inline std::string words_of(std::string_view text) {
  const auto starts_word = [&](size_t i) {
    if (i == 0 || !is_upper(text[i]) || !is_letter(text[i - 1])) return false;
    return !is_upper(text[i - 1]) || (i + 1 < text.size() && is_letter(text[i + 1]) &&
                                      !is_upper(text[i + 1]));  // As N of ANewTerm.
  };
  std::string words;
  for (size_t i = 0; i < text.size(); ++i) {
    if (starts_word(i)) words += ' ';
    const int lower = std::tolower(static_cast<unsigned char>(text[i]));
    words += text[i] == '_' ? ' ' : static_cast<char>(lower);
  }
  return words;
}

// Whether `words` begin before `end` somewhere in `text`, not as a part of other words.
inline bool has_words(const std::string& text, size_t end, std::string_view words) {
  for (size_t at = text.find(words); at < end; at = text.find(words, at + 1)) {
    const size_t after = at + words.size();
    if ((at == 0 || !is_letter(text[at - 1])) && (after >= text.size() || !is_letter(text[after])))
      return true;
  }
  return false;
}

// A sentence that begins with what it is about: "Of three, one is late."
inline bool has_inverted_opening(std::string_view prose) {
  for (size_t at = prose.find("Of "); at != std::string_view::npos;
       at = prose.find("Of ", at + 1)) {
    const bool opens =
        at == 0 || (at > 1 && prose[at - 1] == ' ' &&
                    std::string_view(".:;").find(prose[at - 2]) != std::string_view::npos);
    if (opens && at + 3 < prose.size() && is_letter(prose[at + 3]) && !is_upper(prose[at + 3]))
      return true;
  }
  return false;
}

// A turn may go on in the next line.
inline void check_words(const Source& source, Findings& findings) {
  for (size_t i = 0; i < source.lines.size(); ++i) {
    const std::string_view prose = prose_of(source.lines[i]);
    const std::string own = words_of(prose);
    const std::string_view next =
        i + 1 < source.lines.size() ? prose_of(source.lines[i + 1]) : std::string_view();
    const std::string text = own + " " + words_of(next);
    for (const Turn& turn : kTurns)
      if (has_words(text, own.size(), turn.words))
        findings.push_back({source.path, i + 1,
                            std::string(turn.words) + "; plainer: " + std::string(turn.instead)});
    if (has_inverted_opening(prose))
      findings.push_back({source.path, i + 1, "a sentence that begins with Of; turn it round"});
  }
}

// All texts of the repository: code, pages, scripts, manifests. Not what others wrote or programs
// recorded, nor this rule and its samples.
inline std::vector<Source> read_texts(const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  for (const char* folder : {"client", "daemon", "deploy", "docs", "proto", "tests"})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file()) paths.push_back(entry.path());
  for (const fs::directory_entry& entry : fs::directory_iterator(root))
    if (entry.path().extension() == ".md" || entry.path().filename() == "Dockerfile")
      paths.push_back(entry.path());
  std::ranges::sort(paths);
  static const std::regex kForeign("/(corpus|__pycache__|suite|tidy)/|\\.(json|pyc|png|pem|gz)$");
  std::vector<Source> sources;
  for (const fs::path& path : paths) {
    if (std::regex_search(path.string(), kForeign)) continue;
    std::ifstream file(path);
    sources.push_back({fs::relative(path, root).string(), split_lines(file)});
  }
  return sources;
}

}  // namespace tutti::tidy
