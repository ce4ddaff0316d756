// The finding of slow links, by what the kernels of the hosts say of the connections.
#include <algorithm>

#include "daemon/base/text.h"
#include "daemon/diagnosis/findings.h"

namespace tutti {
namespace {

constexpr double kSlowLink = 4;              // Times slower than usual.
constexpr double kBusySeconds = 0.25;        // Of a link that is judged.
constexpr double kUnmeasuredSeconds = 0.02;  // The kernels count in steps.
constexpr double kLikeLoad = 0.7;            // Of the bytes: a link with as much to move.
constexpr size_t kPeersMin = 2;

double seconds_of(uint64_t us) { return static_cast<double>(us) / 1e6; }

struct Link {
  std::string from;
  const v1::LinkPace* pace = nullptr;
  // Beside what round trips explain, and what one of the two workers waited for processors, which
  // says nothing of the network: the longer time, as on a busy machine both wait at once.
  double busy_s = 0;

  std::string name() const { return "link " + from + "->" + pace->to(); }
  // Bytes a second of busy time: as counted, and what the network can do at most and at least.
  double rate() const { return bytes() / seconds_of(pace->busy_us()); }
  double most() const { return bytes() / busy_s; }
  double least() const { return bytes() / (seconds_of(pace->busy_us()) + kUnmeasuredSeconds); }
  double bytes() const { return static_cast<double>(pace->acked_bytes()); }
  bool is_judged() const { return busy_s >= kBusySeconds; }
};

struct SlowLink {
  const Link* link = nullptr;
  double usual = 0;     // Bytes a second.
  bool is_own = false;  // Its own in the past; else that of others now.

  double times() const { return usual / link->most(); }
};

double waited_seconds(const JobView& view, const std::string& host) {
  uint64_t most = 0;
  const auto found = view.hosts.find(host);
  if (found == view.hosts.end() || found->second.worker == nullptr) return 0;
  for (const v1::LinkPace& pace : found->second.worker->links())
    most = std::max(most, pace.waited_us());
  return seconds_of(most);
}

std::vector<Link> links_of(const JobView& view) {
  std::vector<Link> links;
  for (const auto& [name, host] : view.hosts) {
    const bool answers = host.worker != nullptr && !host.worker->silent();
    if (!answers || host.worker->epoch() != view.epoch) continue;
    for (const v1::LinkPace& pace : host.worker->links())
      if (pace.window_us() != 0 && pace.acked_bytes() != 0)
        links.push_back(
            {name, &pace,
             seconds_of(pace.busy_us()) - seconds_of(pace.latency_us()) -
                 std::max(waited_seconds(view, name), waited_seconds(view, pace.to()))});
  }
  return links;
}

double lower_median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.size() < kPeersMin ? 0 : values[(values.size() - 1) / 2];
}

// The best median of the other links: of all, or without either of its hosts, which may slow down
// all of its links. 0: there are too few that had as much to move.
double rate_of_others(const std::vector<Link>& links, const Link& of) {
  double best = 0;
  for (const std::string& avoided : {std::string(), of.from, of.pace->to()}) {
    std::vector<double> rates;
    for (const Link& link : links) {
      const bool is_other = &link != &of && link.from != avoided && link.pace->to() != avoided;
      if (is_other && link.bytes() >= kLikeLoad * of.bytes()) rates.push_back(link.least());
    }
    best = std::max(best, lower_median(std::move(rates)));
  }
  return best;
}

std::string rate_text(double bytes_a_second) {
  return format_byte_size(static_cast<uint64_t>(bytes_a_second)) + "/s";
}

std::string sentence_of(const SlowLink& slow) {
  return slow.link->name() + " moves " + rate_text(slow.link->rate()) +
         " while it has something to send, " + (slow.is_own ? "usually " : "others ") +
         rate_text(slow.usual);
}

std::string evidence_of(const SlowLink& slow) {
  const v1::LinkPace& pace = *slow.link->pace;
  return slow.link->name() + ": " + format_byte_size(pace.acked_bytes()) + " in " +
         describe_seconds(seconds_of(pace.busy_us())) + " of the last " +
         describe_seconds(seconds_of(pace.window_us())) + ", " +
         (slow.is_own ? "usually " : "others ") + rate_text(slow.usual) + "; " +
         std::to_string(pace.retransmits()) + " segments sent again, round trip " +
         describe_seconds(seconds_of(pace.round_trip_us()));
}

}  // namespace

Finding find_slow_link(const JobView& view) {
  const std::vector<Link> links = links_of(view);
  std::vector<SlowLink> slow;
  for (const Link& link : links) {
    if (!link.is_judged()) continue;
    const auto own = static_cast<double>(link.pace->usual_bytes_per_second());
    const double others = rate_of_others(links, link);
    const SlowLink one{&link, std::max(own, others), own >= others};
    if (one.times() >= kSlowLink) slow.push_back(one);
  }
  if (slow.empty()) return std::nullopt;
  std::ranges::sort(slow, std::greater<>(), &SlowLink::times);
  Diagnosis found{.verdict = Verdict::slow_link, .sentence = sentence_of(slow.front())};
  for (const SlowLink& one : slow)
    if (found.evidence.size() < kEvidenceMax) found.evidence.push_back(evidence_of(one));
  return found;
}

}  // namespace tutti
