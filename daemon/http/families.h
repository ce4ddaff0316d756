// Metrics by family, as Prometheus wants them: all series of a name stand together.
#pragma once

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

using Labels = std::vector<std::pair<std::string, std::string>>;

inline Labels with(Labels labels, const char* name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

class Families {
 public:
  // `type` and `help` are of the family, so they are the same for all of `name`.
  void add(const std::string& name, prometheus::MetricType type, const char* help,
           const Labels& labels, double value) {
    prometheus::ClientMetric& metric = add_series(name, type, help, labels);
    (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }
  void add(const std::string& name, const char* help, const Labels& labels,
           prometheus::ClientMetric::Histogram histogram) {
    add_series(name, prometheus::MetricType::Histogram, help, labels).histogram =
        std::move(histogram);
  }
  const std::vector<prometheus::MetricFamily>& all() const { return families_; }

 private:
  prometheus::ClientMetric& add_series(const std::string& name, prometheus::MetricType type,
                                       const char* help, const Labels& labels) {
    const auto [entry, is_new] = places_.try_emplace(name, families_.size());
    if (is_new) families_.push_back({.name = name, .help = help, .type = type, .metric = {}});
    prometheus::ClientMetric& metric = families_[entry->second].metric.emplace_back();
    for (const auto& [label, value] : labels) metric.label.push_back({label, value});
    return metric;
  }

  std::map<std::string, size_t> places_;  // By name, in families_.
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace tutti
