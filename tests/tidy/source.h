// The repository's own files as text, and what the house rules find in them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tidy {

struct Source {
  std::string path;  // From the repository's root.
  std::vector<std::string> lines;

  std::string_view extension() const {
    const size_t dot = path.rfind('.');
    return dot == std::string::npos ? "" : std::string_view(path).substr(dot);
  }
  bool under(std::string_view prefix) const { return path.starts_with(prefix); }
  bool is_header() const { return extension() == ".h" || extension() == ".hpp"; }
  bool is_python() const { return extension() == ".py"; }
  bool is_rust() const { return extension() == ".rs"; }
  bool is_cpp() const {
    return is_header() || extension() == ".cc" || extension() == ".c" || extension() == ".cu";
  }
};

// One breach of a rule. Lines count from 1.
struct Finding {
  std::string path;
  size_t line;
  std::string what;
};
using Findings = std::vector<Finding>;

inline std::string describe(const Findings& findings) {
  std::string text;
  for (const Finding& found : findings)
    text += found.path + ":" + std::to_string(found.line) + ": " + found.what + "\n";
  return text;
}

inline std::vector<std::string> split_lines(std::istream& text) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

inline Source make_source(std::string path, const std::string& text) {
  std::istringstream stream(text);
  return {std::move(path), split_lines(stream)};
}

// Every C++, CUDA, Python and Rust file of the repository's folders, in the order of their paths.
inline std::vector<Source> read_repository(const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  std::vector<Source> sources;
  for (const char* folder : {"client", "daemon", "deploy", "proto", "tests"})
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file()) continue;
      Source source = {fs::relative(entry.path(), root).string(), {}};
      if (!source.is_cpp() && !source.is_python() && !source.is_rust()) continue;
      std::ifstream file(entry.path());
      source.lines = split_lines(file);
      sources.push_back(std::move(source));
    }
  std::ranges::sort(sources, {}, &Source::path);
  return sources;
}

// Each line that `pattern` finds something in.
inline void find_lines(const Source& source, const std::regex& pattern, const std::string& what,
                       Findings& findings) {
  for (size_t i = 0; i < source.lines.size(); ++i)
    if (std::regex_search(source.lines[i], pattern)) findings.push_back({source.path, i + 1, what});
}

}  // namespace tutti::tidy
