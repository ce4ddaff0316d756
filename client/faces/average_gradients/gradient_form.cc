// What ranks tell each other of their gradients: gradient_form.h.
#include "client/faces/average_gradients/gradient_form.h"

namespace tutti::average_gradients {
namespace {

using Numbers = std::vector<int64_t>;

constexpr int64_t kNoShape = -1;

void write_shape(Numbers& out, const Shape& shape) {
  out.push_back(static_cast<int64_t>(shape.size()));
  out.insert(out.end(), shape.begin(), shape.end());
}

void write_tensor(Numbers& out, const Tensor& tensor) {
  out.push_back(static_cast<int64_t>(tensor.dtype()));
  write_shape(out, tensor.shape());
}

void write(Numbers& out, const GradientForm& form) {
  out.push_back(form.towers);
  if (!form.form) return;
  out.push_back(is_sparse(*form.form) ? 1 : 0);
  write_tensor(out, elements_of(*form.form));
  const auto* slices = std::get_if<IndexedSlices>(&*form.form);
  if (slices == nullptr) return;
  write_tensor(out, slices->indices);
  if (slices->dense_shape)
    write_shape(out, *slices->dense_shape);
  else
    out.push_back(kNoShape);
}

// Reads what write() has written. Reads zeros past the end, and then is not ok().
class Reader {
 public:
  Reader(const int64_t* begin, const int64_t* end) : at_(begin), end_(end) {}

  bool ok() const { return ok_; }
  GradientForm form() {
    GradientForm form{number(), {}};
    if (form.towers == 0) return form;
    const bool sparse = number() != 0;
    Tensor elements = tensor();
    form.form = sparse ? Value(slices(std::move(elements))) : Value(std::move(elements));
    return form;
  }

 private:
  int64_t number() {
    if (at_ != end_) return *at_++;
    ok_ = false;
    return 0;
  }
  Shape shape(int64_t rank) {
    ok_ = ok_ && rank >= 0 && rank <= end_ - at_;
    Shape sizes;
    for (int64_t i = 0; ok_ && i < rank; ++i) sizes.push_back(number());
    return sizes;
  }
  Tensor tensor() {
    const int64_t dtype = number();
    Shape sizes = shape(number());
    ok_ = ok_ && dtype >= 0 && dtype < kDtypes;
    ok_ = ok_ && count_of(sizes, static_cast<Dtype>(dtype)).ok();
    return ok_ ? Tensor::view(static_cast<Dtype>(dtype), std::move(sizes), nullptr) : Tensor();
  }
  IndexedSlices slices(Tensor values) {
    IndexedSlices slices{std::move(values), tensor(), {}};
    const int64_t rank = number();
    if (rank != kNoShape) slices.dense_shape = shape(rank);
    ok_ = ok_ && check_value(Value(slices)).ok();
    return slices;
  }

  const int64_t* at_;
  const int64_t* end_;
  bool ok_ = true;
};

}  // namespace

Result<std::vector<std::vector<GradientForm>>> exchange_forms(
    const Communicator& communicator, const std::vector<GradientForm>& own) {
  Numbers written;
  for (const GradientForm& form : own) write(written, form);
  const auto all = communicator.gather_lists(std::move(written));
  if (!all.ok()) return all.status();
  std::vector<std::vector<GradientForm>> by_rank;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const Numbers& numbers = (*all)[rank];
    Reader reader(numbers.data(), numbers.data() + numbers.size());
    std::vector<GradientForm>& forms = by_rank.emplace_back();
    for (size_t i = 0; i < own.size(); ++i) forms.push_back(reader.form());
    if (!reader.ok())
      return internal_error("rank " + std::to_string(rank) + " sent malformed gradient forms");
  }
  return by_rank;
}

}  // namespace tutti::average_gradients
