// Peers as threads, and their tensors.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client/faces/burn/collective.h"
#include "client/faces/burn/collective_error.h"

namespace tutti::burn {

// A tensor that holds its values.
template <class T = float>
struct Values {
  std::vector<T> numbers;
  Shape shape;
  Dtype dtype = Dtype::f32;

  Tensor view() const { return Tensor::view(dtype, shape, numbers.data()); }
};

inline Values<> list(std::vector<float> numbers) {
  const auto size = static_cast<int64_t>(numbers.size());
  return {std::move(numbers), {size}};
}

template <class T = float>
std::vector<T> numbers_of(const Tensor& tensor) {
  const T* first = reinterpret_cast<const T*>(tensor.data());
  return {first, first + tensor.count()};
}

inline CollectiveConfig config_of(uint32_t devices, const Strategy& strategy = kTree2) {
  CollectiveConfig config;
  config.num_devices = devices;
  config.local_all_reduce_strategy = strategy;
  if (strategy.kind != StrategyKind::ring) config.local_reduce_strategy = strategy;
  return config;
}

// Calls body(peer) on a thread for each peer, and waits for all.
inline void on_threads(const std::vector<PeerId>& peers, const std::function<void(PeerId)>& body) {
  std::vector<std::jthread> threads;
  for (const PeerId id : peers) threads.emplace_back(body, id);
}

inline std::vector<PeerId> ids_below(uint32_t count) {
  std::vector<PeerId> ids;
  for (PeerId id = 0; id < count; ++id) ids.push_back(id);
  return ids;
}

inline const std::vector<Strategy> kStrategies = {
    kCentralized, {StrategyKind::tree, 1}, kTree2, {StrategyKind::tree, 5}, kRing};

}  // namespace tutti::burn
