#include "daemon/kernel/kernel.h"

namespace tutti {

PlainArithmetic::PlainArithmetic() : changed_(true) {
  std::fegetenv(&before_);
  std::fesetenv(FE_DFL_ENV);
}

PlainArithmetic::~PlainArithmetic() {
  if (changed_) std::fesetenv(&before_);
}

}  // namespace tutti
