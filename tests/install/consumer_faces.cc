// All faces in one program, and options that name only some members: no warning, as in a user's
// build.
#include <tutti/faces/average_gradients.h>
#include <tutti/faces/burn.h>
#include <tutti/faces/cross_device.h>
#include <tutti/faces/distribute.h>

#include <tutti.hpp>

int main() {
  const tutti::Group group = tutti::Group::join();
  const tutti::burn::CollectiveConfig config{.num_devices = 2};
  const tutti::average_gradients::Options options{.strict = false};
  const tutti::cross_device::CommunicationOptions communication{.timeout_seconds = 60.0};
  const tutti::distribute::ResolverOptions resolver{.master = "here:1"};
  const float own = 3;
  const tutti::average_gradients::Tower tower = {
      {.value = tutti::faces::Tensor::view(tutti::Dtype::f32, {}, &own)}};
  const auto means = tutti::average_gradients::average_gradients({tower}, options, group.get());
  const bool is_right = means.ok() && elements_of(*(*means)[0]).as<float>()[0] == own;
  return is_right && config.num_devices == 2 && communication.timeout_seconds &&
                 resolver.master == "here:1"
             ? 0
             : 1;
}
