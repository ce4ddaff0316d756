#include "daemon/device/reduce_check.h"

#include <string>

namespace tutti {
namespace {

bool known(Dtype dtype) { return static_cast<int>(dtype) < kDtypes; }

// A 16-bit type meets itself and f32; every other type only itself.
bool can_meet(Dtype a, Dtype b) {
  return a == b || (a == Dtype::f32 && accumulator_of(b) == Dtype::f32) ||
         (b == Dtype::f32 && accumulator_of(a) == Dtype::f32);
}

Status refuse_types(Dtype a, Dtype b) {
  return invalid_argument("cannot reduce " + std::string(name_of(a)) + " with " +
                          std::string(name_of(b)));
}

}  // namespace

Status check_reduce(std::span<const Target> targets, std::span<const Operand> sources,
                    const Reduction& how) {
  if (sources.empty()) return invalid_argument("a reduction needs at least one source");
  if (targets.empty()) return invalid_argument("a reduction needs at least one target");
  if (static_cast<int>(how.op) >= kOps) return invalid_argument("unknown operation");
  const Dtype stored = targets[0].dtype;
  if (!known(stored)) return invalid_argument("unknown type of the target");
  for (const Target& target : targets)
    if (target.dtype != stored) return invalid_argument("the targets differ in type");
  Dtype narrow = stored;  // The one type beside f32 that takes part.
  for (const Operand& source : sources) {
    if (!known(source.dtype)) return invalid_argument("unknown type of a source");
    if (!can_meet(narrow, source.dtype)) return refuse_types(narrow, source.dtype);
    if (narrow == Dtype::f32) narrow = source.dtype;
  }
  if (is_bitwise(how.op) && is_floating(stored))
    return invalid_argument("cannot reduce " + std::string(name_of(stored)) + " with " +
                            std::string(name_of(how.op)));
  if (!how.factors.empty() && (how.op != Op::premul_sum || !is_floating(stored)))
    return invalid_argument("factors are for premul_sum of floating types, not for " +
                            std::string(name_of(how.op)) + " of " + std::string(name_of(stored)));
  if (!how.factors.empty() && how.factors.size() != sources.size())
    return invalid_argument("there are " + std::to_string(how.factors.size()) +
                            " factors, not one for each source");
  if (how.divisor == 0 || (how.divisor != 1 && !is_floating(stored)))
    return invalid_argument("cannot divide " + std::string(name_of(stored)) + " by " +
                            std::to_string(how.divisor));
  return {};
}

}  // namespace tutti
