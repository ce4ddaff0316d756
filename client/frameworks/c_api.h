/* What all systems in libtutti_frameworks.so share in their C ABI. The functions of a system are in
 * its own c_api.h; the library is internal to the language bindings of this version.
 *
 * ERRORS. A function that returns a tutti_code returns TUTTI_OK or the reason of the failure;
 * tutti_frameworks_last_error() then has the message, also where it was a function of libtutti.so
 * that failed. No function throws. */
#pragma once

#include "client/tutti.h"

#if defined(__cplusplus)
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The version of the library, such as "0.1.0". Static. */
const char* tutti_frameworks_version(void);
/* The last failure on this thread of a function of this library: see tutti_last_error(). */
const tutti_error* tutti_frameworks_last_error(void);

#pragma GCC visibility pop
#if defined(__cplusplus)
}
#endif
