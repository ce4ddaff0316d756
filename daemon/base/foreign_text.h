// Text that others have chosen: users, their workers and trainers, other hosts, etcd. It is cleaned
// once, where it comes in, so that whatever shows it later (tables, JSON, logs, metrics, pages,
// errors) can show it as it is: no line is forged and no terminal obeys it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "daemon/base/status.h"
#include "daemon/base/text.h"

namespace tutti {

inline constexpr size_t kHostNameBytesMax = 255;

// INVALID_ARGUMENT, beginning with `what` ("the job's name"): it is longer than that, no UTF-8, or
// has characters that printable() would replace. An empty name is none of it.
Status check_name(const std::string& what, std::string_view name, size_t bytes_max);

// printable(), and cut where it is longer than anything that is shown.
std::string clean_text(std::string text);

// Cleans each string of a protobuf message, and of those within it, but not its bytes.
template <class Message>
void clean_texts(Message& message) {
  const auto* const type = message.GetDescriptor();
  const auto* const access = message.GetReflection();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* const field = type->field(i);
    const bool is_text = field->type() == field->TYPE_STRING;
    if (!is_text && field->type() != field->TYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      if (is_text)
        access->SetString(&message, field, clean_text(access->GetString(message, field)));
      else if (access->HasField(message, field))
        clean_texts(*access->MutableMessage(&message, field));
      continue;
    }
    for (int at = 0; at < access->FieldSize(message, field); ++at) {
      if (is_text)
        access->SetRepeatedString(&message, field, at,
                                  clean_text(access->GetRepeatedString(message, field, at)));
      else
        clean_texts(*access->MutableRepeatedMessage(&message, field, at));
    }
  }
}

}  // namespace tutti
