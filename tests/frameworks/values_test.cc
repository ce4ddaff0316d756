// Values through the C ABI of libtutti_frameworks.so: what a binding may get wrong is an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "client/faces/average_gradients/c_api.h"
#include "client/faces/cross_device/c_api.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::StrEq;

struct FreeOps {
  void operator()(tutti_cross_device* ops) const { tutti_cross_device_free(ops); }
};
struct FreeResults {
  void operator()(tutti_results* results) const { tutti_results_free(results); }
};
using Ops = std::unique_ptr<tutti_cross_device, FreeOps>;
using Results = std::unique_ptr<tutti_results, FreeResults>;

Ops make_ops() {
  tutti_cross_device* ops = nullptr;
  EXPECT_EQ(tutti_reduction_to_one_device_create(nullptr, nullptr, &ops), TUTTI_OK);
  return Ops(ops);
}

// Two numbers on two devices, whose sum goes to the first.
class ValuesTest : public testing::Test {
 protected:
  ValuesTest() {
    for (size_t i = 0; i < 2; ++i) {
      components_[i] = {};
      components_[i].elements = {&numbers_[i], kShape, 1, TUTTI_F32};
      components_[i].device = kDevices[i];
    }
  }
  tutti_code reduce(const char* op = "sum", const tutti_communication_options* options = nullptr) {
    const tutti_reduction reduction{components_, 2, {kDevices, 1}};
    tutti_results* results = nullptr;
    const tutti_code code =
        tutti_cross_device_reduce(ops_.get(), op, &reduction, options, &results);
    results_.reset(results);
    return code;
  }
  void expect_refusal(const std::string& part, const char* op = "sum",
                      const tutti_communication_options* options = nullptr) {
    EXPECT_EQ(reduce(op, options), TUTTI_INVALID_ARGUMENT);
    EXPECT_THAT(tutti_frameworks_last_error()->message, HasSubstr(part));
    EXPECT_EQ(results_, nullptr);
  }

  static constexpr int64_t kShape[] = {1};
  static constexpr const char* kDevices[] = {"CPU:0", "CPU:1"};
  const float numbers_[2] = {1, 2};
  tutti_component components_[2];
  const Ops ops_ = make_ops();
  Results results_;
};

TEST_F(ValuesTest, AResultIsReadByComponent) {
  ASSERT_EQ(reduce("Mean"), TUTTI_OK);
  ASSERT_EQ(tutti_results_size(results_.get()), 1u);
  ASSERT_EQ(tutti_results_components(results_.get(), 0), 1u);
  EXPECT_EQ(tutti_results_components(results_.get(), 1), 0u);
  tutti_component view;
  ASSERT_EQ(tutti_results_get(results_.get(), 0, 0, &view), TUTTI_OK);
  EXPECT_EQ(*static_cast<const float*>(view.elements.data), 1.5f);
  EXPECT_THAT(view.device, StrEq("/device:CPU:0"));
  EXPECT_EQ(tutti_results_get(results_.get(), 0, 1, &view), TUTTI_OUT_OF_RANGE);
  EXPECT_THAT(tutti_frameworks_last_error()->message, HasSubstr("value 0 has no component 1"));
  EXPECT_EQ(tutti_results_get(results_.get(), 1, 0, &view), TUTTI_OUT_OF_RANGE);
}

TEST_F(ValuesTest, TensorsAreChecked) {
  const int64_t negative[] = {-1};
  const int64_t huge[] = {INT64_MAX, INT64_MAX};
  tutti_tensor_view& view = components_[1].elements;
  const tutti_tensor_view good = view;
  view.dtype = 99;
  expect_refusal("dtype 99");
  view = {good.data, negative, 1, good.dtype};
  expect_refusal("negative");
  view = {good.data, huge, 2, good.dtype};
  expect_refusal("too large");
  view = {nullptr, kShape, 1, good.dtype};
  expect_refusal("NULL");
  view = {good.data, nullptr, 1, good.dtype};
  expect_refusal("NULL");
}

TEST_F(ValuesTest, TextsAreChecked) {
  expect_refusal("'MAX' is none of SUM, MEAN", "MAX");
  expect_refusal("'' is none of", nullptr);
  const tutti_communication_options smoke{0, 0, 0, "smoke", 0};
  expect_refusal("'smoke'", "sum", &smoke);
  const tutti_communication_options none{0, 0, 0, nullptr, 0};
  expect_refusal("''", "sum", &none);
  components_[0].device = nullptr;
  expect_refusal("'' is no device");
}

TEST_F(ValuesTest, NullPointersAreRefusedByName) {
  const tutti_reduction reduction{components_, 2, {kDevices, 1}};
  const tutti_devices devices{kDevices, 1};
  tutti_results* results = nullptr;
  const auto expect = [](tutti_code code, const char* part) {
    EXPECT_EQ(code, TUTTI_INVALID_ARGUMENT);
    EXPECT_THAT(tutti_frameworks_last_error()->message, HasSubstr(part));
  };
  expect(tutti_cross_device_reduce(nullptr, "sum", &reduction, nullptr, &results), "'ops'");
  expect(tutti_cross_device_reduce(ops_.get(), "sum", nullptr, nullptr, &results), "'reduction'");
  expect(tutti_cross_device_reduce(ops_.get(), "sum", &reduction, nullptr, nullptr), "'results'");
  expect(tutti_cross_device_batch_reduce(ops_.get(), "sum", nullptr, 1, nullptr, &results),
         "'reductions'");
  expect(tutti_cross_device_broadcast(ops_.get(), nullptr, &devices, 0, nullptr, &results),
         "'component'");
  expect(tutti_cross_device_broadcast(ops_.get(), components_, nullptr, 0, nullptr, &results),
         "'destinations'");
  expect(tutti_frameworks_refuse(nullptr, "no"), "no");
  expect(tutti_hierarchical_copy_create(nullptr, nullptr, nullptr), "'ops'");
  const tutti_reduction no_components{nullptr, 2, {kDevices, 1}};
  expect(tutti_cross_device_reduce(ops_.get(), "sum", &no_components, nullptr, &results),
         "components are NULL");
  const tutti_reduction no_names{components_, 2, {nullptr, 1}};
  expect(tutti_cross_device_reduce(ops_.get(), "sum", &no_names, nullptr, &results),
         "destinations are NULL");
  EXPECT_EQ(tutti_results_size(nullptr), 0u);
  EXPECT_EQ(tutti_results_components(nullptr, 0), 0u);
  tutti_component view;
  expect(tutti_results_get(nullptr, 0, 0, &view), "'results'");
  tutti_results_free(nullptr);
  tutti_cross_device_free(nullptr);
  ASSERT_EQ(tutti_cross_device_batch_reduce(ops_.get(), "sum", nullptr, 0, nullptr, &results),
            TUTTI_OK);
  results_.reset(results);
  EXPECT_EQ(tutti_results_size(results), 0u);
  expect(tutti_results_get(results, 0, 0, nullptr), "'view'");
}

TEST(AverageGradients, ANullValueIsNone) {
  const float number = 3;
  const tutti_component component{{&number, nullptr, 0, TUTTI_F32}, 0, {}, nullptr, 0, nullptr};
  const tutti_gradient gradients[] = {{&component, "w"}, {nullptr, "w"}};
  const size_t lengths[] = {1, 1};
  tutti_average_options options{"skip", 1, 1, 1, nullptr, nullptr, nullptr, nullptr, 0};
  tutti_results* results = nullptr;
  ASSERT_EQ(tutti_average_gradients(gradients, lengths, 2, &options, nullptr, &results), TUTTI_OK);
  const Results owned(results);
  tutti_component view;
  ASSERT_EQ(tutti_results_get(results, 0, 0, &view), TUTTI_OK);
  EXPECT_EQ(*static_cast<const float*>(view.elements.data), 3);
  const auto refuses = [&](const tutti_gradient* all, const size_t* towers,
                           const tutti_average_options* how, tutti_results** means) {
    return tutti_average_gradients(all, towers, 2, how, nullptr, means) == TUTTI_INVALID_ARGUMENT;
  };
  EXPECT_TRUE(refuses(nullptr, lengths, &options, &results));
  EXPECT_TRUE(refuses(gradients, nullptr, &options, &results));
  EXPECT_TRUE(refuses(gradients, lengths, nullptr, &results));
  EXPECT_TRUE(refuses(gradients, lengths, &options, nullptr));
  EXPECT_THAT(tutti_frameworks_last_error()->message, HasSubstr("'results'"));
  options.none = nullptr;
  EXPECT_EQ(tutti_average_gradients(gradients, lengths, 2, &options, nullptr, &results),
            TUTTI_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tutti
