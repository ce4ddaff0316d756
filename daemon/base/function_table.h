// Tables of the functions of a library that is loaded at run time.
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace tutti {

// Fills a table, and notes the first function that the library lacks.
class FunctionLoader {
 public:
  // `find`: of the library that was loaded, as dlsym().
  explicit FunctionLoader(std::function<void*(const char* name)> find) : find_(std::move(find)) {}
  // Empty: the library lacks none.
  const std::string& missing() const { return missing_; }

  // Null where the library lacks the function.
  template <class Member>
  void operator()(Member& member, const char* name) {
    optional(member, name);
    if (member == nullptr && missing_.empty()) missing_ = name;
  }
  // The same, of one that the library may lack.
  template <class Member>
  void optional(Member& member, const char* name) const {
    member = reinterpret_cast<Member>(find_(name));
  }

 private:
  const std::function<void*(const char*)> find_;
  std::string missing_;
};

}  // namespace tutti
