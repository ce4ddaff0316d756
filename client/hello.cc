#include "client/hello.h"

namespace tutti::client {
namespace {

// Protobuf's wire types.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// proto3 leaves out what is 0 or empty.
void put_number(std::string& out, uint32_t field, uint32_t value) {
  if (value == 0) return;
  put_varint(out, field << 3 | kVarint);
  put_varint(out, value);
}

void put_text(std::string& out, uint32_t field, const std::string& text) {
  if (text.empty()) return;
  put_varint(out, field << 3 | kBytes);
  put_varint(out, text.size());
  out += text;
}

struct Field {
  uint32_t number = 0;
  Wire type = kVarint;
  uint64_t value = 0;     // Of varints.
  std::string_view text;  // Of length-delimited fields.
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return bytes_.empty(); }

  std::optional<Field> next() {
    const std::optional<uint64_t> read = varint();
    if (!read) return std::nullopt;
    const auto tag = static_cast<uint32_t>(*read);
    Field field{.number = tag >> 3, .type = static_cast<Wire>(tag & 7)};
    if (field.number == 0) return std::nullopt;
    switch (field.type) {
      case kVarint:
        return with_value(field);
      case kBytes:
        return with_text(field);
      case kFixed64:
        return skip(8) ? std::optional(field) : std::nullopt;
      case kFixed32:
        return skip(4) ? std::optional(field) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::optional<Field> with_value(Field field) {
    const std::optional<uint64_t> value = varint();
    if (!value) return std::nullopt;
    field.value = *value;
    return field;
  }

  std::optional<Field> with_text(Field field) {
    const std::optional<uint64_t> length = varint();
    if (!length || *length > bytes_.size()) return std::nullopt;
    field.text = bytes_.substr(0, *length);
    bytes_.remove_prefix(*length);
    return field;
  }

  bool skip(size_t count) {
    if (count > bytes_.size()) return false;
    bytes_.remove_prefix(count);
    return true;
  }

  std::string_view bytes_;
};

// As protobuf does, a known number of another type is skipped like an unknown one.
void apply(const Field& field, Welcome& welcome) {
  const bool text = field.number == 2 || field.number == 4 || field.number == 7;
  if (field.type != (text ? kBytes : kVarint)) return;
  switch (field.number) {
    case 1:
      welcome.code = code_of(static_cast<int>(field.value));
      break;
    case 2:
      welcome.message = field.text;
      break;
    case 3:
      welcome.culprit.rank = static_cast<int32_t>(field.value);
      break;
    case 4:
      welcome.culprit.host = field.text;
      break;
    case 5:
      welcome.version = static_cast<uint32_t>(field.value);
      break;
    case 6:
      welcome.epoch = static_cast<uint32_t>(field.value);
      break;
    case 7:
      welcome.hosts.emplace_back(field.text);
      break;
    case 8:
      welcome.worker_pid = static_cast<uint32_t>(field.value);
      break;
    default:
      break;
  }
}

}  // namespace

std::string encode(const Hello& hello) {
  std::string out;
  put_number(out, 1, hello.version);
  put_text(out, 2, hello.job);
  put_text(out, 3, hello.token);
  put_number(out, 4, hello.rank);
  put_number(out, 5, hello.world_size);
  put_number(out, 6, hello.timeout_ms);
  put_number(out, 7, hello.pid);
  return out;
}

std::optional<Welcome> decode_welcome(std::string_view bytes) {
  Welcome welcome;
  for (Reader reader(bytes); !reader.at_end();) {
    const std::optional<Field> field = reader.next();
    if (!field) return std::nullopt;
    apply(*field, welcome);
  }
  return welcome;
}

}  // namespace tutti::client
