#include <cstring>
#include <tutti.hpp>

int main() {
  try {
    tutti::Group::join();
  } catch (const tutti::Error& error) {
    return std::strstr(error.what(), "TUTTI_RANK") != nullptr ? 0 : 1;
  }
  return 2;
}
