// What a rank tells the others of its gradient of a variable: all but the elements.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/faces/base/base.h"

namespace tutti::average_gradients {

using namespace faces;

struct GradientForm {
  int64_t towers = 0;  // Of the rank that have a gradient; 0: no form.
  // A value of this shape, dtype and, of slices, number of rows, without memory.
  std::optional<Value> form;
};

// The forms of every rank, by rank. All ranks call it, with as many forms.
Result<std::vector<std::vector<GradientForm>>> exchange_forms(const Communicator& communicator,
                                                              const std::vector<GradientForm>& own);

}  // namespace tutti::average_gradients
