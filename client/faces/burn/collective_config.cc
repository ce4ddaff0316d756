#include "client/faces/burn/collective_config.h"

#include <vector>

#include "client/faces/burn/collective_error.h"
#include "daemon/board/board.h"

namespace tutti::burn {
namespace {

// A field as text, for comparison and messages.
struct Field {
  std::string name;
  std::string value;
};

template <class T>
std::string text_of(const std::optional<T>& value) {
  if (!value) return "not set";
  if constexpr (std::is_same_v<T, std::string>)
    return *value;
  else
    return std::to_string(*value);
}

std::vector<Field> fields_of(const CollectiveConfig& config) {
  return {{"num_devices", std::to_string(config.num_devices)},
          {"local_all_reduce_strategy", to_string(config.local_all_reduce_strategy)},
          {"local_reduce_strategy", to_string(config.local_reduce_strategy)},
          {"local_broadcast_strategy", to_string(config.local_broadcast_strategy)},
          {"num_nodes", text_of(config.num_nodes)},
          {"global_address", text_of(config.global_address)},
          {"node_address", text_of(config.node_address)},
          {"data_service_port", text_of(config.data_service_port)},
          {"global_all_reduce_strategy", to_string(config.global_all_reduce_strategy)},
          {"global_reduce_strategy", to_string(config.global_reduce_strategy)},
          {"global_broadcast_strategy", to_string(config.global_broadcast_strategy)}};
}

Status validate_strategy(const char* field, const Strategy& strategy, bool ring_possible) {
  const auto refuse = [&](const std::string& why) {
    return error_of(CollectiveError::invalid_config,
                    std::string(field) + "=" + to_string(strategy) + why);
  };
  if (strategy.kind == StrategyKind::tree && strategy.arity == 0)
    return refuse(": arity must be >= 1");
  if (strategy.kind == StrategyKind::automatic) return refuse(": choose centralized, tree or ring");
  if (strategy.kind == StrategyKind::ring && !ring_possible)
    return refuse(": choose centralized or tree");
  return {};
}

Status validate_counts(const CollectiveConfig& config) {
  if (!config.is_valid())
    return error_of(CollectiveError::invalid_config,
                    "num_nodes, global_address, node_address and data_service_port must be given "
                    "all or none");
  if (config.num_devices < 1 || config.num_devices > kLocalRanksMax)
    return error_of(CollectiveError::invalid_config,
                    "num_devices=" + std::to_string(config.num_devices) + " must be 1 to " +
                        std::to_string(kLocalRanksMax));
  if (config.num_nodes == 0U)
    return error_of(CollectiveError::invalid_config, "num_nodes=0 must be at least 1");
  return {};
}

}  // namespace

bool CollectiveConfig::is_valid() const {
  const bool given = num_nodes.has_value();
  return global_address.has_value() == given && node_address.has_value() == given &&
         data_service_port.has_value() == given;
}

Status validate(const CollectiveConfig& config) {
  if (Status status = validate_counts(config); !status.ok()) return status;
  const struct {
    const char* field;
    const Strategy& strategy;
    bool ring_possible;
  } strategies[] = {{"local_all_reduce_strategy", config.local_all_reduce_strategy, true},
                    {"local_reduce_strategy", config.local_reduce_strategy, false},
                    {"local_broadcast_strategy", config.local_broadcast_strategy, false},
                    {"global_all_reduce_strategy", config.global_all_reduce_strategy, true},
                    {"global_reduce_strategy", config.global_reduce_strategy, false},
                    {"global_broadcast_strategy", config.global_broadcast_strategy, false}};
  for (const auto& [field, strategy, ring_possible] : strategies)
    if (Status status = validate_strategy(field, strategy, ring_possible); !status.ok())
      return status;
  return {};
}

std::string difference(const CollectiveConfig& wanted, const CollectiveConfig& given) {
  const std::vector<Field> first = fields_of(wanted);
  const std::vector<Field> second = fields_of(given);
  for (size_t i = 0; i < first.size(); ++i)
    if (first[i].value != second[i].value)
      return first[i].name + " is " + second[i].value + ", not " + first[i].value;
  return "";
}

}  // namespace tutti::burn
