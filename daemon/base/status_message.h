// A Status in a message: any with the fields of StatusMessage (proto/status.proto).
#pragma once

#include "daemon/base/status.h"

namespace tutti {

template <class Message>
void write_status(const Status& status, Message& to) {
  to.set_code(static_cast<int>(status.code()));
  to.set_message(status.message());
  to.set_culprit_rank(status.culprit().rank);
  to.set_culprit_host(status.culprit().host);
}

// OK where the code is 0; a code outside the table is UNKNOWN.
template <class Message>
Status read_status(const Message& from) {
  if (from.code() == 0) return {};
  return {code_of(from.code()), from.message(), {from.culprit_rank(), from.culprit_host()}};
}

}  // namespace tutti
