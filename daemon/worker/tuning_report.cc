#include "daemon/worker/tuning_report.h"

namespace tutti {
namespace {

constexpr int kTimesMax = 512;
constexpr int kLinksMax = 512;

}  // namespace

v1::Tuning tuning_report(const Tuner& tuner) {
  v1::Tuning report;
  for (const Tuner::Row& row : tuner.rows()) {
    if (report.times_size() == kTimesMax) break;
    v1::StrategyTime& time = *report.add_times();
    time.set_collective(static_cast<uint32_t>(row.collective));
    time.set_bytes(row.bytes);
    time.set_hosts(static_cast<uint32_t>(row.hosts));
    time.set_ranks(static_cast<uint32_t>(row.ranks));
    time.set_strategy(to_string(row.strategy));
    time.set_predicted_us(row.predicted_us);
    time.set_measured_us(row.measured_us);
    time.set_samples(static_cast<uint32_t>(row.samples));
    time.set_chosen(row.chosen);
  }
  for (const auto& [pair, figures] : tuner.links()) {
    if (report.links_size() == kLinksMax) break;
    v1::LinkTime& link = *report.add_links();
    link.set_from(pair.first);
    link.set_to(pair.second);
    link.set_message_us(figures.message_us);
    link.set_byte_us(figures.byte_us);
  }
  return report;
}

}  // namespace tutti
