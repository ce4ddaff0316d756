#include "daemon/agent/capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti {
namespace {

constexpr bool is_used_by_root(unsigned long capability) {
  return capability == CAP_DAC_OVERRIDE || capability == CAP_IPC_LOCK ||
         capability == CAP_SYS_PTRACE;
}

}  // namespace

void bound_capabilities(Keep keep) {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  // The kernel may know more than its headers did: it ends the list.
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    if (keep == Keep::nothing || !is_used_by_root(capability))
      prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
}

bool drop_capabilities(Keep keep) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct own[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, own) != 0) return false;
  for (__user_cap_data_struct& half : own)
    half = keep == Keep::nothing ? __user_cap_data_struct{}
                                 : __user_cap_data_struct{half.effective, half.permitted, 0};
  return syscall(SYS_capset, &header, own) == 0;
}

}  // namespace tutti
