// What a program and its commands take on the command line, and their help. CLI11 reads it, which
// options.cc alone includes: no header takes a compiler longer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti {

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& shows_default();  // In the help, of the value that it has now.
  Option& shows_default(const std::string& text);
  Option& within(int64_t min, int64_t max);
  Option& separated_by(char separator);  // Of a list.
  Option& required();
  Option& last_counts();                       // Where it is given several times.
  Option& of_type(const std::string& name);    // In the help.
  Option& in_group(const std::string& title);  // In the help; empty: it is not shown there.

 private:
  CLI::Option* option_;
};

// What a program, or one of its commands, takes. `flags`: "--last", "-v,--verbose", or "JOB" for an
// argument without a flag. What options are stored to must outlive the program.
class CommandOptions {
 public:
  // Takes texts, numbers, std::optional of them, and lists; see the end of options.cc.
  template <class T>
  Option add(const std::string& flags, T& to, const std::string& help);
  // Calls `take` with each value.
  Option add_call(const std::string& flags, const std::function<void(const std::string&)>& take,
                  const std::string& help);
  void add_flag(const std::string& flags, bool& to, const std::string& help);
  void footer(const std::string& text);  // Below the help.

 protected:
  friend class Program;
  explicit CommandOptions(CLI::App* app) : app_(app) {}
  CLI::App* app_;
};

class Program : public CommandOptions {
 public:
  // `version`: for --version.
  Program(const std::string& name, const std::string& description, const std::string& version);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // From the first on, one must be called. The help shows them by `section`, in the order in which
  // they were added.
  CommandOptions command(const std::string& name, const std::string& help,
                         const std::string& section = "Commands");
  std::string suggest_command(const std::string& name) const;  // As did_you_mean().
  // --help leaves out the options of these groups, --help-all shows them.
  void show_on_request(std::vector<std::string> groups);

  struct Read {
    std::optional<int> exit_code;  // Help or the version was printed: the program ends with this.
    std::string error;             // What is wrong; empty: nothing.
    std::string command;           // The one that was called, as far as it was read.
  };
  Read read(std::vector<std::string> arguments);

 private:
  void hide_groups();
  const CLI::App& chosen() const;
  std::string describe_extras(const std::vector<std::string>& arguments) const;
  std::string describe_empty_item(const std::vector<std::string>& arguments) const;

  std::unique_ptr<CLI::App> owned_;
  std::vector<std::string> on_request_;
};

}  // namespace tutti
