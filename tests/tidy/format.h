// What a file may look like: short, plain, and without forks.
#pragma once

#include "tests/tidy/source.h"

namespace tutti::tidy {

constexpr size_t kMostLines = 600;
constexpr size_t kMostColumns = 100;
constexpr size_t kMostFunctionLines = 60;
constexpr size_t kMostFunctions = 40;  // Of a class.

inline void check_length(const Source& source, Findings& findings) {
  if (source.lines.size() >= kMostLines)
    findings.push_back({source.path, source.lines.size(),
                        "files stay under " + std::to_string(kMostLines) + " lines"});
}

// Columns are characters: a byte that continues a UTF-8 sequence is none.
inline void check_columns(const Source& source, Findings& findings) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  for (size_t i = 0; i < source.lines.size(); ++i) {
    const auto columns = static_cast<size_t>(std::ranges::count_if(source.lines[i], begins));
    if (columns > kMostColumns)
      findings.push_back({source.path, i + 1, std::to_string(columns) + " columns"});
  }
}

inline void check_blanks(const Source& source, Findings& findings) {
  static const std::regex kTab("\t");
  static const std::regex kTrailing("[ \t\r]$");
  find_lines(source, kTab, "a tab", findings);
  find_lines(source, kTrailing, "a trailing blank", findings);
}

inline void check_leftovers(const Source& source, Findings& findings) {
  static const std::regex kLeftover(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X|HA"
      "CK)\\b");
  find_lines(source, kLeftover, "unfinished work belongs in an issue", findings);
}

// Platforms are chosen by file. What remains: a C header that C++ reads too, and a public header
// that meets compilers we do not know.
inline void check_forks(const Source& source, Findings& findings) {
  static const std::regex kFork("^\\s*#\\s*(if|ifdef|ifndef|elif)\\b");
  static const std::regex kCplusplus("\\b__cplusplus\\b");
  static const std::regex kHas("\\b__has_[a-z_]+\\b");
  const bool public_header = source.is_header() && source.under("client/");
  const bool c_header = source.is_header() && (public_header || source.under("proto/"));
  for (size_t i = 0; source.is_cpp() && i < source.lines.size(); ++i) {
    const std::string& line = source.lines[i];
    if (!std::regex_search(line, kFork)) continue;
    if (c_header && std::regex_search(line, kCplusplus)) continue;
    if (public_header && std::regex_search(line, kHas)) continue;
    findings.push_back({source.path, i + 1, "a preprocessor fork; choose by file instead"});
  }
}

inline void check_headers(const Source& source, Findings& findings) {
  if (!source.is_header()) return;
  if (std::ranges::find(source.lines, "#pragma once") == source.lines.end())
    findings.push_back({source.path, 1, "a header without #pragma once"});
  // The faces' namespaces take in that of their base.
  static const std::regex kUsing("^\\s*using\\s+namespace\\b(?! faces;)");
  find_lines(source, kUsing, "a header opens a namespace for everyone", findings);
}

inline void check_waits(const Source& source, Findings& findings) {
  static const std::regex kSleep(
      "\\b(sleep"
      "_for|sleep"
      "_until|usl"
      "eep|nanosl"
      "eep)\\b");
  static const std::regex kSilentWait("(&&|;).*[Cc]lock::now\\(\\) <|[Cc]lock::now\\(\\) <.*&&");
  if (!source.under("tests/")) return;
  find_lines(source, kSleep, "a test that sleeps", findings);
  if (!source.path.ends_with("support/await.h"))
    find_lines(source, kSilentWait, "a wait that may run out unnoticed: use await()", findings);
}

inline size_t indent_of(const std::string& line) { return line.find_first_not_of(' '); }

inline void find_long(const Source& source, size_t first, size_t last, Findings& findings) {
  const size_t lines = last - first + 1;
  if (lines > kMostFunctionLines)
    findings.push_back(
        {source.path, first + 1, "a function of " + std::to_string(lines) + " lines"});
}

// As clang-format leaves them, the lines between a function's first and its closing brace are
// indented deeper than both; looks at functions that begin in column 0 or 2.
inline void check_cpp_functions(const Source& source, Findings& findings) {
  static const std::regex kClose("^(|  )\\}$");
  static const std::regex kNoFunction("^\\s*(namespace|class|struct|enum|union|extern|#|//)");
  for (size_t last = 0; last < source.lines.size(); ++last) {
    if (!std::regex_match(source.lines[last], kClose)) continue;
    const size_t indent = indent_of(source.lines[last]);
    size_t first = last;
    while (first > 0 && (first == last || indent_of(source.lines[first]) > indent ||
                         source.lines[first].starts_with('#')))
      --first;
    if (!std::regex_search(source.lines[first], kNoFunction))
      find_long(source, first, last, findings);
  }
}

inline void check_python_functions(const Source& source, Findings& findings) {
  static const std::regex kDef("^\\s*(async )?def\\b");
  for (size_t first = 0; first < source.lines.size(); ++first) {
    if (!std::regex_search(source.lines[first], kDef)) continue;
    const size_t indent = indent_of(source.lines[first]);
    size_t last = first;
    for (size_t i = first + 1; i < source.lines.size(); ++i) {
      const std::string& line = source.lines[i];
      if (line.empty()) continue;
      if (indent_of(line) <= indent && line[indent_of(line)] != ')') break;
      last = i;
    }
    find_long(source, first, last, findings);
  }
}

inline void check_functions(const Source& source, Findings& findings) {
  if (source.is_rust()) return;  // An impl block would be one.
  source.is_python() ? check_python_functions(source, findings)
                     : check_cpp_functions(source, findings);
}

// Whether a line at the depth of a class's members declares a function: it has a parameter list
// before any value. A function that is deleted is none.
inline bool declares_function(std::string line) {
  static const std::regex kOther("^ *(friend|using|static_assert|//)|= delete;");
  static const std::regex kArguments("<[^<>]*>");  // Of a template.
  static const std::regex kFunction("\\boperator\\b|^[^={;<]*\\w\\(");
  if (std::regex_search(line, kOther)) return false;
  while (std::regex_search(line, kArguments)) line = std::regex_replace(line, kArguments, "");
  return std::regex_search(line, kFunction);
}

// As clang-format leaves them, members are indented by 2 more than their class. tutti.hpp is not
// counted: it has a function for each of tutti.h.
inline void check_classes(const Source& source, Findings& findings) {
  static const std::regex kClass("^ *(class|struct) [^;]*");
  const bool product = source.under("client/") || source.under("daemon/");
  if (source.extension() != ".h" || !product) return;
  for (size_t first = 0; first < source.lines.size(); ++first) {
    if (!std::regex_match(source.lines[first], kClass)) continue;
    const size_t indent = indent_of(source.lines[first]);
    const std::string end = std::string(indent, ' ') + "}";
    size_t functions = 0;
    for (size_t i = first + 1; i < source.lines.size() && !source.lines[i].starts_with(end); ++i)
      functions += indent_of(source.lines[i]) == indent + 2 && declares_function(source.lines[i]);
    if (functions > kMostFunctions)
      findings.push_back(
          {source.path, first + 1, "a class of " + std::to_string(functions) + " functions"});
  }
}

}  // namespace tutti::tidy
