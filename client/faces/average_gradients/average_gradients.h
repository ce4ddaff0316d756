// The mean of the gradients that several towers (replicas) computed for the same variables, in one
// process or over a group, as the function average_gradients of multi-GPU training loops.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/faces/base/base.h"
#include "client/tutti.h"

namespace tutti::average_gradients {

using namespace faces;

struct Gradient {
  std::optional<Value> value = std::nullopt;  // Empty: the tower has none for this variable (None).
  std::string variable = {};  // For messages, and to compare the order among ranks; may be "".
};

// One gradient for each variable, in the same order in all towers.
using Tower = std::vector<Gradient>;

// What to do about a gradient that some towers do not have.
enum class NonePolicy {
  error,
  skip,   // The mean of those that are there.
  zeros,  // The sum of those that are there, divided by the number of towers.
};
// "error", "skip" or "zeros". INVALID_ARGUMENT for any other text.
Result<NonePolicy> parse_none_policy(const std::string& text);

struct Options {
  NonePolicy none = NonePolicy::error;
  bool strict = true;  // Towers of different lengths are an error; else the shortest counts.
  bool sum_duplicates = true;  // Rows of slices with one index are summed, in order of the indices.
  // Scales each gradient of each tower whose norm is larger down to this norm, before the mean.
  std::optional<double> clip_norm = std::nullopt;
  // Scales all means down so that their global norm is at most this.
  std::optional<double> clip_global_norm = std::nullopt;
  // For a group: whether the ranks must give the same texts as variables.
  bool compare_variables = true;
  // For a whole call; else, or 0, that of the join.
  std::optional<double> timeout_seconds = std::nullopt;
  std::string strategy = {};  // As in tutti_options; "": the job's.
  // Whether the sum over the ranks is, as in tutti_options; else as the join says.
  std::optional<bool> reproducible = std::nullopt;
};

// The mean of each variable's gradients over all towers, of all ranks in a group; nothing for a
// variable that no tower has a gradient for. No result shares memory with an input.
//
// The sum is divided by the number of towers; that of 16-bit floats is made in f32 and rounded
// once. Within a process towers are summed in their order. Slices: the rows of all towers, divided;
// if some towers of a process have tensors, its slices are made dense. Norms are computed in f64. A
// norm that is not finite makes all that it would scale NaN.
//
// In a group all ranks make the same calls in the same order, each with the towers of its process.
// They agree on what they are about to do: where they differ, or where one refuses its arguments,
// all get INVALID_ARGUMENT, and the next call works.
//
// INVALID_ARGUMENT: towers of different lengths; a gradient that is missing, by the policy; values
// of a variable with different shapes or dtypes; integers, unless there is a single tower; bools; a
// norm to clip to that is not above 0.
Result<std::vector<std::optional<Value>>> average_gradients(const std::vector<Tower>& towers,
                                                            const Options& options = {},
                                                            tutti_group* group = nullptr);

}  // namespace tutti::average_gradients
