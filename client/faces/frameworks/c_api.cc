// What all systems share in their C ABI: c_api.h.
#include "client/faces/frameworks/c_api.h"

#include "client/faces/frameworks/c_values.h"
#include "client/faces/frameworks/last_error.h"

const char* tutti_frameworks_version(void) { return TUTTI_VERSION; }

tutti_code tutti_frameworks_refuse(tutti_group* group, const char* message) {
  using namespace tutti;
  return frameworks::guarded(
      [&] { return faces::refuse(group, invalid_argument(frameworks::text_of(message))); });
}
