#include "client/operations/input_copy.h"

#include "daemon/kernel/kernel.h"

namespace tutti::client {

void InputCopy::operator()(std::byte* to, const std::byte* from, size_t bytes) const {
  if (scales())
    scale(dtype_, to, from, bytes / size_of(dtype_), factor_);
  else
    copy_bytes(to, from, bytes);
}

}  // namespace tutti::client
