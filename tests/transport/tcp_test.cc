// What a network can do to TCP links, plain or in TLS: peers on either end that do not
// authenticate, send invalid frames, stall or impersonate a worker, played by bare sockets.
#include "daemon/transport/frame_reader.h"
#include "tests/support/await.h"
#include "tests/transport/bare.h"

namespace tutti {
namespace {

// ---- At the listener ----

struct TcpListener : testing::TestWithParam<const char*> {};

struct Lie {
  const char* name;
  Bytes bytes;
  Code code;
};

std::vector<Lie> lies() {
  FrameHeader stranger = first_header(4), newer = first_header(4), odd = first_header(4),
              late = first_header(4);
  stranger.magic = 0;
  newer.version = kFrameVersion + 1;
  odd.kind = static_cast<FrameKind>(9);
  late.link_seq = 1;
  return {{"wrong magic", frame(stranger, 4), Code::invalid_argument},
          {"wrong version", frame(newer, 4), Code::invalid_argument},
          {"unknown kind", frame(odd, 4), Code::invalid_argument},
          {"a gap", frame(late, 4), Code::data_loss},
          {"a repeat", frame(first_header(4), 4) + frame(first_header(4), 4), Code::data_loss},
          {"too large", frame(first_header(kMax + 1), kMax + 1), Code::invalid_argument},
          {"says less", frame(first_header(3), 4) + Bytes(64, 'x'), Code::invalid_argument},
          {"says far more", frame(first_header(~size_t{0}), 4), Code::invalid_argument}};
}

TEST_P(TcpListener, ClosesOnFramesThatLie) {
  for (const Lie& lie : lies()) {
    Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
    const Bare liar = Bare::dial(listener.address);
    EXPECT_EQ(introduce(liar, kSecret).code, 0u);
    liar.say(lie.bytes);
    EXPECT_EQ(listener.end->closed_code(), lie.code) << lie.name;
    const Bytes goodbye = liar.hear(sizeof(FrameHeader));
    ASSERT_EQ(goodbye.size(), sizeof(FrameHeader)) << lie.name;
    EXPECT_EQ(from_bytes<FrameHeader>(goodbye).kind, FrameKind::goodbye) << lie.name;
  }
}

TEST_P(TcpListener, ProvesThatItKnowsTheSecretToo) {
  Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
  const Bare client = Bare::dial(listener.address);
  const Bytes hello = hello_of(kSecret);
  client.say(hello);
  const Bytes said = hello + client.hear(sizeof(LinkChallenge));
  client.say(to_bytes(prove(kSecret, "d" + said)));
  const auto answer = from_bytes<LinkAnswerHead>(client.hear(sizeof(LinkAnswerHead)));
  EXPECT_TRUE(equal_proofs(answer.proof, prove(kSecret, "l" + said)));
  EXPECT_FALSE(equal_proofs(answer.proof, prove(kSecret, "d" + said)));
}

TEST_P(TcpListener, TurnsAwayAWrongProof) {
  Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
  const Bare client = Bare::dial(listener.address);
  const LinkAnswerHead answer = introduce(client, "a guess");
  EXPECT_EQ(answer.code, static_cast<uint32_t>(Code::unauthenticated));
  EXPECT_EQ(client.hear(answer.text_bytes), "a stranger");
  EXPECT_TRUE(client.hung_up());
}

TEST_P(TcpListener, WelcomesNobodyWhoseKnowledgeItHasNotAskedFor) {
  Listener listener({.connect_timeout_ms = 200}, nullptr, GetParam());
  listener.lets_wait = true;
  const Bare stranger = Bare::dial(listener.address);
  stranger.say(hello_of(""));
  stranger.hear(sizeof(LinkChallenge));
  stranger.say(Bytes(sizeof(LinkProof), 'x') + frame(first_header(4), 4));
  const Bytes answer = stranger.hear(sizeof(LinkAnswerHead));
  ASSERT_EQ(answer.size(), sizeof(LinkAnswerHead));
  EXPECT_NE(from_bytes<LinkAnswerHead>(answer).code, 0u);
  EXPECT_EQ(listener.end->closed_code(), Code::deadline_exceeded);
}

TEST_P(TcpListener, HangsUpOnStrangersUnasked) {
  LinkHelloHead newer, wordy;
  newer.version = 9;
  wordy.job_bytes = ~uint32_t{0};
  for (const Bytes& words : {Bytes(64, 'x'), Bytes("GET / HTTP/1.1\r\n") + Bytes(64, ' '),
                             to_bytes(newer), to_bytes(wordy)}) {
    Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
    const Bare stranger = Bare::dial(listener.address);
    stranger.say(words);
    EXPECT_TRUE(stranger.hung_up());
    EXPECT_EQ(listener.asked, 0);
  }
}

TEST_P(TcpListener, WaitsForDawdlersOnlySoLong) {
  Listener listener({.connect_timeout_ms = 200}, nullptr, GetParam());
  const Bare silent = Bare::dial(listener.address);
  const Bare slow = Bare::dial(listener.address);
  slow.say("T");
  const Bare unproven = Bare::dial(listener.address);
  unproven.say(hello_of(kSecret));
  EXPECT_EQ(unproven.hear(sizeof(LinkChallenge)).size(), sizeof(LinkChallenge));
  const Bare prompt = Bare::dial(listener.address);
  EXPECT_EQ(introduce(prompt, kSecret).code, 0u);
  for (const Bare* dawdler : {&silent, &slow, &unproven}) EXPECT_TRUE(dawdler->hung_up());
  EXPECT_EQ(listener.asked, 1);
  prompt.say(frame(first_header(4), 4));
  EXPECT_EQ(listener.end->next().value().bytes.size(), 4u);
}

TEST_P(TcpListener, HasRoomForAWorkerAmongStrangers) {
  Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
  std::vector<Bare> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(Bare::dial(listener.address));
  const Bare worker = Bare::dial(listener.address);
  EXPECT_EQ(introduce(worker, kSecret).code, 0u);
  EXPECT_TRUE(strangers.front().hung_up()) << "the oldest makes room";
}

TEST_P(TcpListener, StrangersDoNotCrowdOutAWorkerThatWaits) {
  // 300 handshakes of TLS may take long; that is not what ends the wait here.
  Listener listener({.frame_bytes_max = kMax, .connect_timeout_ms = 600'000}, nullptr, GetParam());
  listener.lets_wait = true;
  const Bare worker = Bare::dial(listener.address);
  const Bytes hello = hello_of(kSecret);
  worker.say(hello);
  const Bytes challenge = worker.hear(sizeof(LinkChallenge));
  worker.say(to_bytes(prove(kSecret, "d" + hello + challenge)));
  const IncomingLink guest = listener.waiting.get_future().get();
  std::vector<Bare> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(Bare::dial(listener.address));
  EXPECT_TRUE(strangers.front().hung_up());
  EXPECT_TRUE(guest.verify_secret(kSecret));
  const Bytes answer = worker.hear(sizeof(LinkAnswerHead));
  ASSERT_EQ(answer.size(), sizeof(LinkAnswerHead));
  EXPECT_EQ(from_bytes<LinkAnswerHead>(answer).code, 0u);
}

TEST_P(TcpListener, NoticesAPeerThatVanishes) {
  Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
  Bare client = Bare::dial(listener.address);
  introduce(client, kSecret);
  client.say(frame(first_header(100), 40));  // In the middle of a frame.
  client.vanish();
  EXPECT_EQ(listener.end->closed_code(), Code::unavailable);
}

TEST_P(TcpListener, TakesFramesThatCameBeforeItsAnswer) {
  Listener listener({.frame_bytes_max = kMax}, nullptr, GetParam());
  const Bare eager = Bare::dial(listener.address);
  const Bytes hello = hello_of(kSecret);
  eager.say(hello);
  const Bytes challenge = eager.hear(sizeof(LinkChallenge));
  eager.say(to_bytes(prove(kSecret, "d" + hello + challenge)) + frame(first_header(4), 4));
  EXPECT_EQ(listener.end->next().value().bytes.size(), 4u);
}

// ---- Receive buffers of the handler ----

struct TcpRecvBuffer : testing::TestWithParam<const char*> {};

Bytes data_frame(uint64_t op_seq, size_t bytes) {
  FrameHeader header;
  header.op_seq = op_seq;
  return frame(FrameSequencer().complete(header, bytes), bytes);
}

TEST_P(TcpRecvBuffer, PayloadsComeWhereTheHandlerWants) {
  const auto placer = std::make_shared<Placer>();
  Listener listener({}, placer, GetParam());
  const Bare client = Bare::dial(listener.address);
  introduce(client, kSecret);
  client.say(data_frame(1, Placer::kBytes));
  ASSERT_TRUE(placer->next().has_value());
  EXPECT_EQ(placer->arrived_at, placer->memory.data());
  EXPECT_EQ(placer->memory, std::vector<std::byte>(Placer::kBytes, std::byte{'x'}));
}

TEST_P(TcpRecvBuffer, TakenBackItIsNotTouchedAgain) {
  const auto placer = std::make_shared<Placer>();
  Listener listener({}, placer, GetParam());
  const Bare a = Bare::dial(listener.address), b = Bare::dial(listener.address);
  introduce(a, kSecret);
  introduce(b, kSecret);
  const Bytes bytes = data_frame(1, Placer::kBytes);
  a.say(bytes.substr(0, 1'000));
  ASSERT_TRUE(placer->monitor.wait([&] { return placer->placed; }));
  b.say(data_frame(2, 4));
  ASSERT_TRUE(placer->next().has_value());
  a.say(bytes.substr(1'000));
  ASSERT_EQ(placer->next().value().bytes.size(), Placer::kBytes);
  EXPECT_NE(placer->arrived_at, placer->memory.data());
  for (size_t i = 1'000; i < Placer::kBytes; ++i) ASSERT_EQ(placer->memory[i], std::byte{0});
}

// As happens if the link pauses between the last byte and the delivery of the frame.
TEST(FrameReader, WithABufferTakenBackFromAWholePayloadTheFrameHasMemoryOfItsOwn) {
  Placer placer;
  FrameReader reader(std::make_shared<BufferPool>(0), Placer::kBytes);
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const std::unique_ptr<Wire> near = make_plain_wire(Fd(ends[0]));
  const Fd far(ends[1]);
  const Bytes bytes = data_frame(1, 8'000);
  const auto read = [&](size_t begin, size_t end) {
    EXPECT_EQ(::send(far.get(), &bytes[begin], end - begin, 0), static_cast<ssize_t>(end - begin));
    EXPECT_EQ(reader.fill(*near), static_cast<ssize_t>(end - begin));
  };
  read(0, sizeof(FrameHeader));
  EXPECT_FALSE(reader.next(&placer)->has_value());
  read(sizeof(FrameHeader), bytes.size());
  placer.recv_buffer->withdraw();
  const auto next = reader.next(&placer);
  ASSERT_TRUE(next.ok() && next->has_value());
  const Payload& payload = (*next)->payload;
  EXPECT_EQ(payload.bytes(), 8'000u);
  EXPECT_NE(payload.fragments.at(0).data(), nullptr);
  EXPECT_NE(payload.fragments.at(0).data(), placer.memory.data());
}

// ---- At the dialler ----

struct TcpDialler : testing::TestWithParam<const char*> {};

// A bare listener, and a link that dials it.
class Impostor {
 public:
  explicit Impostor(const std::string& kind, const LinkLimits& limits = {})
      : has_tls_(kind.ends_with("+tls")), transport(make_transport(kind, limits, nullptr)) {
    link = transport->connect(to_string({listener_.address(), has_tls_ ? tls_.fingerprint() : ""}),
                              {"demo", 7, "a", kSecret}, end);
    EXPECT_TRUE(link->send({{}, {}, nullptr}).ok());
  }
  Bare answer() const {
    Fd socket(::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return has_tls_ ? Bare(make_tls_listener_wire(std::move(socket), tls_))
                    : Bare(std::move(socket));
  }

 private:
  const bool has_tls_;
  const TlsIdentity tls_;

 public:
  const std::unique_ptr<Transport> transport;
  const std::shared_ptr<Recorder> end = std::make_shared<Recorder>();
  std::shared_ptr<Link> link;

 private:
  LoopbackListener listener_;
};

TEST_P(TcpDialler, TellsNobodyTheSecretAndSendsNothingToAnImpostor) {
  Impostor impostor(GetParam());
  const Bare peer = impostor.answer();
  Bytes heard = peer.hear(hello_of(kSecret).size());
  peer.say(to_bytes(LinkChallenge()));
  heard += peer.hear(sizeof(LinkProof));
  peer.say(write_welcome({}));
  EXPECT_EQ(impostor.end->closed_code(), Code::unauthenticated);
  EXPECT_TRUE(peer.hung_up()) << "not one frame";
  EXPECT_EQ(heard.find(kSecret), Bytes::npos);
}

TEST_P(TcpDialler, GivesUpWhatIsNoListener) {
  LinkChallenge newer;
  newer.version = 2;
  LinkAnswerHead wordy;
  wordy.code = 7;
  wordy.text_bytes = ~uint32_t{0};
  const Bytes good = to_bytes(LinkChallenge());
  for (const Bytes& words : {Bytes("SSH-2.0-OpenSSH") + Bytes(64, ' '), to_bytes(newer), Bytes("T"),
                             good, good + to_bytes(wordy)}) {
    Impostor impostor(GetParam());
    Bare peer = impostor.answer();
    (void)peer.hear(hello_of(kSecret).size());
    peer.say(words);
    peer.vanish();
    EXPECT_EQ(impostor.end->closed_code(), Code::unavailable);
  }
}

TEST_P(TcpDialler, GivesUpASilentListenerInTime) {
  Impostor impostor(GetParam(), {.connect_timeout_ms = 100});
  const Bare peer = impostor.answer();
  EXPECT_EQ(impostor.end->closed_code(), Code::deadline_exceeded);
}

TEST_P(TcpDialler, FindsHostsByName) {
  const auto there = make_transport(GetParam(), {}, nullptr);
  const auto here = make_transport(GetParam(), {}, nullptr);
  const auto end = std::make_shared<Recorder>();
  const auto address = there->listen("localhost:0", take_all(end));
  ASSERT_TRUE(address.ok());
  ASSERT_TRUE(address->starts_with("localhost:"));
  const auto link = here->connect(*address, {}, std::make_shared<Recorder>());
  ASSERT_TRUE(link->send({{.op_seq = 4}, {}, nullptr}).ok());
  EXPECT_EQ(end->next().value().header.op_seq, 4u);
}

TEST_P(TcpDialler, NamesAddressesThatLeadNowhere) {
  const auto transport = make_transport(GetParam(), {}, nullptr);
  const std::string fingerprint =
      std::string(GetParam()).ends_with("+tls") ? "#" + std::string(64, 'a') : "";
  for (const auto& [address, code] : {std::pair("nonsense", Code::invalid_argument),
                                      std::pair("no-such-host.invalid:7", Code::unavailable)}) {
    const auto end = std::make_shared<Recorder>();
    const auto link = transport->connect(address + fingerprint, {}, end);
    EXPECT_EQ(end->closed_code(), code);
    EXPECT_NE(end->closed()->message().find(address), std::string::npos);
  }
}

const auto kKinds = testing::Values("tcp", "tcp+tls");
const auto kName = [](const auto& each) { return name_of_kind(each.param); };
INSTANTIATE_TEST_SUITE_P(Transports, TcpListener, kKinds, kName);
INSTANTIATE_TEST_SUITE_P(Transports, TcpRecvBuffer, kKinds, kName);
INSTANTIATE_TEST_SUITE_P(Transports, TcpDialler, kKinds, kName);

// ---- What the kernel counts ----

uint64_t acked_bytes(const Link& link) {
  uint64_t sum = 0;
  for (const ConnectionCounts& each : link.connections()) sum += each.acked_bytes;
  return sum;
}

TEST(TcpLinkCounts, TellWhatThePeersHostHasAcknowledged) {
  for (const int streams : {0, 2}) {
    Loop loop;
    const LinkLimits limits{.silence_ms = 3'600'000, .streams = streams};
    const auto there = make_tcp_transport(loop, limits);
    const auto here = make_tcp_transport(loop, limits);
    const auto address = there->listen("127.0.0.1:0", take_all(std::make_shared<Recorder>()));
    ASSERT_TRUE(address.ok());
    Sender sender;
    const auto link = here->connect(*address, {.job = "demo"}, std::make_shared<Recorder>());
    EXPECT_TRUE(link->connections().empty()) << "it is not open";
    for (uint64_t i = 0; i < 16; ++i) sender.send_patiently(*link, kMiB, i);
    EXPECT_TRUE(await(loop, [&] { return acked_bytes(*link) >= 16 * kMiB; }));
    EXPECT_LT(acked_bytes(*link), 17 * kMiB);
    EXPECT_EQ(link->connections().size(), static_cast<size_t>(1 + streams));
    EXPECT_GT(link->connections()[0].round_trip.count(), 0);
    EXPECT_LE(link->connections()[0].least_round_trip, link->connections()[0].round_trip);
    link->close({});
    EXPECT_TRUE(await(loop, [&] { return sender.released() == sender.sent(); }));
    EXPECT_TRUE(await(loop, [&] { return link->connections().empty(); }));
  }
}

}  // namespace
}  // namespace tutti
