// What TLS adds to links between hosts, over every transport that has it: who is refused and how
// that is said; and the wire below TCP links, whatever the network does to its records.
#include "tests/transport/raw_grpc.h"

namespace tutti {
namespace {

constexpr size_t kAnswerMax = 8'000;  // The listener's part of a handshake, and settings of HTTP/2.

std::string other_fingerprint(std::string address) {
  char& last = address.back();
  last = last == '0' ? '1' : '0';
  return address;
}

std::array<Fd, 2> socket_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// What the socket has, at most `most` bytes.
Bytes take(const Fd& from, size_t most = 1 << 20) {
  Bytes bytes(most, '\0');
  const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

// The first words of a dialler.
Bytes client_hello() {
  auto [ours, theirs] = socket_pair();
  const auto wire = make_tls_dialler_wire(std::move(ours), TlsIdentity(), Bytes(64, '0'));
  EXPECT_TRUE(wire->secure().ok());
  return take(theirs);
}

// ---- Links ----

class TlsLink : public testing::TestWithParam<const char*> {
 protected:
  std::string plain_kind() const {
    const std::string kind = GetParam();
    return kind.substr(0, kind.find('+'));
  }
  // Dials `address` over a transport of `kind`, and returns why the link closes.
  static Status refused(const std::string& kind, const std::string& address) {
    const auto transport = make_transport(kind, {}, nullptr);
    const auto end = std::make_shared<Recorder>();
    const auto link = transport->connect(address, {"demo", 7, "a", kSecret}, end);
    return end->closed().value_or(Status());
  }
  static void expect_open(Listener& listener, const std::string& kind) {
    const auto transport = make_transport(kind, {}, nullptr);
    const auto link = transport->connect(listener.address, {"demo", 7, "a", kSecret},
                                         std::make_shared<Recorder>());
    EXPECT_TRUE(link->send({{.op_seq = 5}, {}, nullptr}).ok());
    EXPECT_EQ(listener.end->next().value().header.op_seq, 5u);
  }
};

TEST_P(TlsLink, ListenerWithAnotherCertificateIsRefusedByName) {
  Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
  const Status cause = refused(GetParam(), other_fingerprint(listener.address));
  EXPECT_EQ(cause.code(), Code::unauthenticated) << cause.to_string();
  EXPECT_EQ(cause.message(), host_and_port(listener.address) +
                                 ": it is not the worker of the roster: its certificate is another "
                                 "one");
  EXPECT_EQ(listener.asked, 0);
  expect_open(listener, GetParam());
}

TEST_P(TlsLink, HostsWithoutTlsAndHostsWithItRefuseEachOther) {
  for (const bool listener_has_tls : {false, true}) {
    const std::string kinds[] = {plain_kind(), GetParam()};
    Listener listener({.frame_bytes_max = kMax}, nullptr, kinds[listener_has_tls]);
    const Status cause = refused(kinds[!listener_has_tls], listener.address);
    EXPECT_EQ(cause.code(), Code::failed_precondition) << cause.to_string();
    const std::string theirs = listener_has_tls ? "require" : "off";
    const std::string ours = listener_has_tls ? "off" : "require";
    EXPECT_EQ(cause.message(), "tls = " + theirs + " on the host at " +
                                   host_and_port(listener.address) + ", " + ours +
                                   " here; set the same on all hosts");
    EXPECT_EQ(listener.asked, 0);
  }
}

// As from a roster that somebody has changed.
TEST_P(TlsLink, PlainDiallerGetsNothing) {
  Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
  const Status cause = refused(plain_kind(), host_and_port(listener.address));
  EXPECT_EQ(cause.code(), Code::unavailable) << cause.to_string();
  EXPECT_NE(cause.message().find(host_and_port(listener.address)), std::string::npos);
  EXPECT_EQ(listener.asked, 0);
}

TEST_P(TlsLink, IsUnharmedByStrangersOnThePort) {
  Listener listener({.connect_timeout_ms = 600'000}, nullptr, GetParam());
  const Bytes hello = client_hello();
  Bytes older = hello;  // Without the extension that offers TLS 1.3; its random bytes stay.
  older.at(older.find({"\0\x2b\0\x03\x02\x03\x04", 7}) + 1) = '\xaa';
  for (const Bytes& words :
       {hello_of(kSecret), Bytes("GET / HTTP/1.1\r\nHost: tutti\r\n\r\n"), Bytes(1'000, '\xff'),
        Bytes(1'000, '\0'), Bytes("\x16\x03\x01\xff\xff") + Bytes(1'000, 'x'),
        Bytes("\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9), Bytes("\x14\x03\x03\x00\x01\x01", 6),
        Bytes("\x17\x03\x03\x00\x10", 5) + Bytes(16, 'x'), hello + hello, older}) {
    const Bare stranger(connect_to(listener.address));
    stranger.say(words);
    EXPECT_TRUE(stranger.hangs_up_after(kAnswerMax)) << "it is answered, or waited for";
  }
  EXPECT_EQ(listener.asked, 0);
  expect_open(listener, GetParam());
}

TEST_P(TlsLink, DiallersThatStopInTheirHandshakeAreDroppedInTime) {
  Listener listener({.connect_timeout_ms = 300}, nullptr, GetParam());
  const Bytes hello = client_hello();
  const Bare silent(connect_to(listener.address)), half(connect_to(listener.address)),
      unfinished(connect_to(listener.address));
  half.say(hello.substr(0, hello.size() / 2));
  unfinished.say(hello);
  expect_open(listener, GetParam());
  for (const Bare* stopped : {&silent, &half, &unfinished})
    EXPECT_TRUE(stopped->hangs_up_after(kAnswerMax));
  EXPECT_EQ(listener.asked, 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, TlsLink, testing::Values("grpc+tls", "tcp+tls"),
                         [](const auto& each) { return name_of_kind(each.param); });

TEST(TcpTlsListener, CountsDiallersInTheirHandshakeAsHalfOpen) {
  Listener listener({.connect_timeout_ms = 600'000, .half_open_max = 4}, nullptr, "tcp+tls");
  const Bytes hello = client_hello();
  const Bare oldest(connect_to(listener.address));
  oldest.say(hello);
  EXPECT_FALSE(oldest.hear(1).empty()) << "the listener's part of the handshake";
  std::vector<Bare> more;
  for (int i = 0; i < 4; ++i) more.emplace_back(connect_to(listener.address));
  EXPECT_TRUE(oldest.hangs_up_after(kAnswerMax));
  const Bare worker = Bare::dial(listener.address);
  EXPECT_EQ(introduce(worker, kSecret).code, 0u);
}

// ---- Identities and endpoints ----

TEST(TlsIdentities, AreNewEachTime) {
  const TlsIdentity one, other;
  EXPECT_EQ(one.fingerprint().size(), 64u);
  EXPECT_NE(one.fingerprint(), other.fingerprint());
  EXPECT_EQ(fingerprint_of_pem(one.certificate_pem()), one.fingerprint());
  EXPECT_EQ(fingerprint_of_pem(other.certificate_pem()), other.fingerprint());
  EXPECT_EQ(fingerprint_of_pem("no certificate"), "");
  EXPECT_NE(one.key_pem().find("PRIVATE KEY"), std::string::npos);
}

TEST(Endpoints, HaveAFingerprintIfAndOnlyIfTheListenerTakesTls) {
  const std::string fingerprint(64, 'a');
  const auto tls = parse_endpoint("[::1]:7#" + fingerprint, true);
  ASSERT_TRUE(tls.ok());
  EXPECT_EQ(tls->address, "[::1]:7");
  EXPECT_EQ(tls->fingerprint, fingerprint);
  EXPECT_EQ(to_string(*tls), "[::1]:7#" + fingerprint);
  const auto plain = parse_endpoint("host:7", false);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(to_string(*plain), "host:7");
  EXPECT_EQ(parse_endpoint("host:7", true).status().code(), Code::failed_precondition);
  EXPECT_EQ(parse_endpoint("host:7#" + fingerprint, false).status().code(),
            Code::failed_precondition);
  for (const std::string& wrong : {std::string(), fingerprint.substr(1), fingerprint + "a",
                                   std::string(64, 'A'), std::string(64, '/')})
    EXPECT_EQ(parse_endpoint("host:7#" + wrong, true).status().code(), Code::invalid_argument);
}

// ---- The wire ----

// Two wires and what lies between them, which forwards when and what a test wants.
class Cable {
 public:
  explicit Cable(uint64_t records_per_key = kRecordsPerKey) {
    auto near_pair = socket_pair();
    auto far_pair = socket_pair();
    near_end = std::move(near_pair[1]);
    far_end = std::move(far_pair[1]);
    near = make_tls_dialler_wire(std::move(near_pair[0]), identity, identity.fingerprint(),
                                 records_per_key);
    far = make_tls_listener_wire(std::move(far_pair[0]), identity);
  }
  // Forwards up to `most` bytes each way. Returns whether there were any.
  bool forward(size_t most = 1 << 20) {
    const size_t forth = move(near_end, far_end, forth_, most);
    const size_t back = move(far_end, near_end, back_, most);
    forwarded += forth;
    return forth + back > 0;
  }
  void secure(size_t most = 1 << 20) {
    for (bool near_done = false, far_done = false; !near_done || !far_done;) {
      const Result<bool> near_now = near->secure(), far_now = far->secure();
      ASSERT_TRUE(near_now.ok()) << near_now.status().to_string();
      ASSERT_TRUE(far_now.ok()) << far_now.status().to_string();
      near_done = *near_now;
      far_done = *far_now;
      ASSERT_TRUE(forward(most) || (near_done && far_done)) << "both sides wait";
    }
  }
  // Writes all `parts` at the near end and returns what arrives at the far end.
  Bytes carry(std::vector<Bytes> parts, size_t most = 1 << 20) {
    Bytes heard;
    size_t wanted = 0;
    for (const Bytes& part : parts) wanted += part.size();
    size_t sum = 0;
    for (bool moved = true; heard.size() < wanted && (moved || sum < wanted);) {
      const ssize_t wrote = near->write(rest_of(parts, sum));
      if (wrote > 0) sum += static_cast<size_t>(wrote);
      moved = forward(most) || wrote > 0;
      const size_t had = heard.size();
      EXPECT_NE(read_exactly(*far, heard, wanted), ReadResult::broken);
      moved = moved || heard.size() > had;
    }
    return heard;
  }

  const TlsIdentity identity;
  Fd near_end, far_end;
  std::unique_ptr<Wire> near, far;
  size_t forwarded = 0;  // From near to far.

 private:
  // `held` is what was taken and does not fit into the other socket yet.
  static size_t move(const Fd& from, const Fd& to, Bytes& held, size_t most) {
    if (held.empty()) held = take(from, most);
    const ssize_t sent = ::send(to.get(), held.data(), held.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    held.erase(0, static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    return static_cast<size_t>(std::max<ssize_t>(sent, 0));
  }
  static std::vector<iovec> rest_of(std::vector<Bytes>& parts, size_t skip) {
    std::vector<iovec> rest;
    for (Bytes& part : parts) {
      const size_t skipped = std::min(skip, part.size());
      skip -= skipped;
      if (skipped < part.size()) rest.push_back({part.data() + skipped, part.size() - skipped});
    }
    return rest;
  }

  Bytes forth_, back_;
};

Bytes text(size_t bytes, uint64_t seed) {
  const std::vector<std::byte> made = pattern(bytes, seed);
  return {reinterpret_cast<const char*>(made.data()), made.size()};
}

TEST(TlsWire, CarriesLargeAndTinyPartsInOrder) {
  Cable cable;
  cable.secure();
  std::vector<Bytes> parts;
  Bytes all;
  for (const size_t bytes : {1, 0, 72, 16'384, 16'383, 1, 3'000'000, 16'385, 2, 40'000, 72, 0, 9}) {
    parts.push_back(text(bytes, parts.size()));
    all += parts.back();
  }
  EXPECT_TRUE(cable.carry(parts) == all);
}

TEST(TlsWire, PutsSmallPartsIntoOneRecord) {
  Cable cable;
  cable.secure();
  const size_t before = cable.forwarded;
  EXPECT_EQ(cable.carry(std::vector<Bytes>(64, Bytes(100, 'x'))), Bytes(6'400, 'x'));
  EXPECT_LT(cable.forwarded - before, 6'500u);
}

TEST(TlsWire, LosesNothingWhenBytesComeOneByOne) {
  Cable cable;
  cable.secure(1);
  const Bytes words = text(40'000, 3);
  EXPECT_TRUE(cable.carry({words}, 1) == words);
}

TEST(TlsWire, ChangesItsKeysInTime) {
  const Bytes words = text(300'000, 1);
  const auto bytes_with = [&](uint64_t records_per_key) {
    Cable cable(records_per_key);
    cable.secure();
    const size_t before = cable.forwarded;
    EXPECT_TRUE(cable.carry({words}) == words);
    return cable.forwarded - before;
  };
  // A key update is a record of 27 bytes; the 300,000 bytes take 19 records.
  EXPECT_EQ(bytes_with(2), bytes_with(kRecordsPerKey) + 9 * size_t{27});
}

TEST(TlsWire, NoticesAChangedByte) {
  Cable cable;
  cable.secure();
  const Bytes words(100, 'x');
  const iovec part{const_cast<char*>(words.data()), words.size()};
  ASSERT_EQ(cable.near->write({&part, 1}), 100);
  Bytes record = take(cable.near_end);
  record.at(50) ^= 1;
  ASSERT_EQ(::send(cable.far_end.get(), record.data(), record.size(), 0),
            static_cast<ssize_t>(record.size()));
  Bytes heard;
  EXPECT_EQ(read_exactly(*cable.far, heard, 1), ReadResult::broken);
  EXPECT_TRUE(heard.empty());
}

TEST(TlsWire, TakesNothingWhileTheSocketIsFull) {
  Cable cable;
  cable.secure();
  Bytes words = text(1 << 20, 5);
  const iovec part{words.data(), words.size()};
  size_t taken = 0;
  ssize_t wrote = 0;
  while ((wrote = cable.near->write({&part, 1})) > 0) {
    taken += static_cast<size_t>(wrote);
    ASSERT_LT(taken, size_t{64} << 20) << "it never pushes back";
  }
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(wrote, -1);
  EXPECT_TRUE(cable.near->has_unsent());
  size_t heard = 0;
  while (cable.forward() || cable.near->has_unsent()) {
    (void)cable.near->write({});
    Bytes some;
    EXPECT_NE(read_exactly(*cable.far, some, 1 << 20), ReadResult::broken);
    heard += some.size();
  }
  EXPECT_EQ(heard, taken);
}

TEST(TlsWire, EndsWhereThePeerEnds) {
  Cable cable;
  cable.secure();
  Bytes words = "last words";
  const iovec part{words.data(), words.size()};
  ASSERT_EQ(cable.near->write({&part, 1}), 10);
  cable.forward();
  cable.far_end.reset();
  Bytes heard(10, '\0');
  const iovec into{heard.data(), heard.size()};
  EXPECT_EQ(cable.far->read({&into, 1}), 10);
  EXPECT_EQ(heard, words);
  EXPECT_EQ(cable.far->read({&into, 1}), 0);
}

TEST(TlsWire, DiallerSaysNothingToAnotherCertificate) {
  const TlsIdentity own;
  auto [near, far] = socket_pair();
  const auto dialler = make_tls_dialler_wire(std::move(near), own, TlsIdentity().fingerprint());
  const auto listener = make_tls_listener_wire(std::move(far), own);
  ASSERT_TRUE(dialler->secure().ok());
  ASSERT_TRUE(listener->secure().ok());
  EXPECT_EQ(dialler->secure().status().code(), Code::unauthenticated);
  EXPECT_EQ(dialler->secure().status().code(), Code::unauthenticated) << "asked again";
}

}  // namespace
}  // namespace tutti
