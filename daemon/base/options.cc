#include "daemon/base/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "daemon/base/text.h"

namespace tutti {
namespace {

// One like --token= becomes two, for CLI11 would take the next argument for its value.
std::vector<std::string> with_empty_values(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& word : arguments) {
    const bool is_empty = word.starts_with("--") && word.find('=') == word.size() - 1;
    words.push_back(is_empty ? word.substr(0, word.size() - 1) : word);
    if (is_empty) words.emplace_back();
  }
  return words;
}

}  // namespace

Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::shows_default(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::within(int64_t min, int64_t max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option& Option::separated_by(char separator) {
  option_->delimiter(separator);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::last_counts() {
  option_->take_last();
  return *this;
}

Option& Option::of_type(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::in_group(const std::string& title) {
  option_->group(title);
  return *this;
}

template <class T>
Option CommandOptions::add(const std::string& flags, T& to, const std::string& help) {
  return Option(app_->add_option(flags, to, help));
}

Option CommandOptions::add_call(const std::string& flags,
                                const std::function<void(const std::string&)>& take,
                                const std::string& help) {
  return Option(app_->add_option_function<std::string>(flags, take, help));
}

void CommandOptions::add_flag(const std::string& flags, bool& to, const std::string& help) {
  app_->add_flag(flags, to, help);
}

void CommandOptions::footer(const std::string& text) { app_->footer(text); }

Program::Program(const std::string& name, const std::string& description,
                 const std::string& version)
    : CommandOptions(nullptr), owned_(std::make_unique<CLI::App>(description, name)) {
  app_ = owned_.get();
  app_->set_version_flag("--version", version);
}

Program::~Program() = default;

CommandOptions Program::command(const std::string& name, const std::string& help,
                                const std::string& section) {
  app_->require_subcommand(1);
  return CommandOptions(app_->add_subcommand(name, help)->group(section));
}

std::string Program::suggest_command(const std::string& name) const {
  std::vector<std::string> names;
  for (const CLI::App* app : app_->get_subcommands(nullptr)) names.push_back(app->get_name());
  return did_you_mean(name, std::vector<std::string_view>(names.begin(), names.end()));
}

void Program::show_on_request(std::vector<std::string> groups) {
  on_request_ = std::move(groups);
  app_->set_help_all_flag("--help-all", "print this help with all settings");
}

void Program::hide_groups() {
  for (CLI::Option* option : app_->get_options())
    if (std::ranges::find(on_request_, option->get_group()) != on_request_.end()) option->group("");
}

// The command that was called, else the program.
const CLI::App& Program::chosen() const {
  const std::vector<CLI::App*> commands = app_->get_subcommands();
  return commands.empty() ? *app_ : *commands.front();
}

// What the program, or the command that was called, does not take: the first option of that kind.
std::string Program::describe_extras(const std::vector<std::string>& arguments) const {
  const std::vector<std::string> extras = app_->remaining(true);
  const auto is_extra = [&](const std::string& word) {
    return std::ranges::find(extras, word) != extras.end();
  };
  for (const std::string& word : arguments) {
    if (!word.starts_with("--") || !is_extra(word)) continue;
    std::vector<std::string> names;  // Suggestions are views of them.
    for (const CLI::Option* option : chosen().get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    const std::string option = word.substr(0, word.find('='));
    return "there is no option '" + option + "'" +
           did_you_mean(option, std::vector<std::string_view>(names.begin(), names.end()));
  }
  const auto extra = std::ranges::find_if(arguments, is_extra);
  return "there is no use for the argument '" + (extra == arguments.end() ? "" : *extra) + "'";
}

// What list has an empty item, which CLI11 would leave out; empty: none has.
std::string Program::describe_empty_item(const std::vector<std::string>& arguments) const {
  const CLI::Option* option = nullptr;  // Whose values follow.
  for (const std::string& word : arguments) {
    const size_t equals = word.starts_with("--") ? word.find('=') : 0;
    if (word.starts_with("--")) option = chosen().get_option_no_throw(word.substr(0, equals));
    const char separator = option == nullptr ? '\0' : option->get_delimiter();
    if (separator == '\0' || equals == std::string::npos) continue;
    const std::string list = word.substr(equals == 0 ? 0 : equals + 1);
    if (std::ranges::count(split(list, separator), "") != 0)
      return option->get_name() + " '" + list + "' has an empty item; leave it out, or give it";
  }
  return "";
}

Program::Read Program::read(std::vector<std::string> arguments) {
  arguments = with_empty_values(arguments);
  const std::vector<std::string> arguments_given = arguments;
  std::ranges::reverse(arguments);  // As CLI11 wants them.
  Read read;
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::CallForHelp& help) {
    hide_groups();
    read.exit_code = app_->exit(help);
  } catch (const CLI::ExtrasError&) {
    read.error = describe_extras(arguments_given);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0)
      read.exit_code = app_->exit(error);
    else
      read.error = error.what();
  }
  if (const std::string empty = describe_empty_item(arguments_given); !empty.empty())
    read.error = empty;
  if (&chosen() != app_) read.command = chosen().get_name();
  return read;
}

template Option CommandOptions::add(const std::string&, std::string&, const std::string&);
template Option CommandOptions::add(const std::string&, int&, const std::string&);
template Option CommandOptions::add(const std::string&, uint32_t&, const std::string&);
template Option CommandOptions::add(const std::string&, double&, const std::string&);
template Option CommandOptions::add(const std::string&, std::optional<std::string>&,
                                    const std::string&);
template Option CommandOptions::add(const std::string&, std::optional<uint32_t>&,
                                    const std::string&);
template Option CommandOptions::add(const std::string&, std::vector<std::string>&,
                                    const std::string&);
template Option CommandOptions::add(const std::string&, std::vector<int>&, const std::string&);

}  // namespace tutti
