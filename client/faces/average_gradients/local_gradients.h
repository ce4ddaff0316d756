// The gradients of this process's towers by variable, checked and clipped, before any is averaged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/faces/average_gradients/average_gradients.h"
#include "client/faces/cross_device/reduction_plan.h"

namespace tutti::average_gradients {

struct LocalGradients {
  std::string variable;  // As given.
  std::string label;     // "variable 'w'", or "variable 2" without a text.
  int64_t present = 0;   // Towers that have a gradient.
  // The gradients that are there; nothing where none is.
  std::optional<cross_device::ReductionPlan> plan;

  // The gradient as others see it; nothing where there is none.
  std::optional<Value> form() const;
};

// "variable 'w'" or, without a text, "variable 2".
std::string label_of(const std::string& variable, size_t index);

// A number in as few digits as tell it from all others.
std::string text_of(double number);

// INVALID_ARGUMENT: see average_gradients(). `is_alone`: there are no other towers than these.
Result<std::vector<LocalGradients>> gather_local(const std::vector<Tower>& towers,
                                                 const Options& options, bool is_alone);

}  // namespace tutti::average_gradients
