// The library's version: that of the project in CMakeLists.txt.
#include "client/tutti.h"

const char* tutti_version(void) { return TUTTI_VERSION; }
