#include "client/rank/hello.h"

namespace tutti::client {
namespace {

// The wire types of protobuf.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// proto3 omits values that are 0 or empty.
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
  std::string_view text;  // The bytes of other types.
};

// Reads the fields of an encoded message in order.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return bytes_.empty(); }

  // nullopt: the bytes are no field.
  std::optional<Field> next() {
    uint64_t tag = 0;
    if (!read_varint(tag)) return std::nullopt;
    Field field{.number = static_cast<uint32_t>(tag) >> 3, .type = static_cast<Wire>(tag & 7)};
    if (field.number == 0 || !read_value(field)) return std::nullopt;
    return field;
  }

 private:
  bool read_value(Field& field) {
    uint64_t length = 0;
    switch (field.type) {
      case kVarint:
        return read_varint(field.value);
      case kBytes:
        return read_varint(length) && read_text(length, field.text);
      case kFixed64:
        return read_text(8, field.text);
      case kFixed32:
        return read_text(4, field.text);
    }
    return false;
  }

  bool read_varint(uint64_t& value) {
    for (uint32_t shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool read_text(uint64_t length, std::string_view& text) {
    if (length > bytes_.size()) return false;
    text = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return true;
  }

  std::string_view bytes_;
};

// Like protobuf, skips a field of a known number but of another type.
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
