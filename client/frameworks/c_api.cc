// What all systems share in their C ABI: c_api.h.
#include "client/frameworks/c_api.h"

const char* tutti_frameworks_version(void) { return TUTTI_VERSION; }
