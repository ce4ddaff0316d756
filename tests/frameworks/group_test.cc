// A rank whose call through the C ABI is refused: all ranks fail that call, and stay in step.
#include <functional>

#include "client/faces/average_gradients/c_api.h"
#include "client/faces/cross_device/c_api.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using tutti::testing::check;
using tutti::testing::RankContext;

class RefusalTest : public tutti::testing::TwoHostsTest {};

constexpr const char* kDevice = "CPU:0";
constexpr int kOffender = 1;

// The only component of a call: a number without a shape.
struct Scalar {
  explicit Scalar(float given) : number(given) {}
  tutti_component component() const {
    return {{&number, nullptr, 0, TUTTI_F32}, 0, {}, nullptr, 0, kDevice};
  }
  float number;
};

// The first number of the results, which it frees.
float read(tutti_results* results) {
  tutti_component view;
  check(tutti_results_get(results, 0, 0, &view) == TUTTI_OK, "a result");
  const float number = *static_cast<const float*>(view.elements.data);
  tutti_results_free(results);
  return number;
}

tutti_cross_device* make_ops(const Group& group) {
  tutti_cross_device* ops = nullptr;
  check(tutti_hierarchical_copy_create(nullptr, group.get(), &ops) == TUTTI_OK, "an object");
  return ops;
}

using Wrong = std::function<tutti_code()>;

// The offender makes the wrong call and the others the right one. All must fail, and say why.
void check_refusal(const Group& group, const Wrong& wrong, const Wrong& right,
                   const std::string& part) {
  const bool offends = group.rank() == kOffender;
  const tutti_code code = offends ? wrong() : right();
  const std::string message = tutti_frameworks_last_error()->message;
  check(code == TUTTI_INVALID_ARGUMENT, "the code for " + part);
  check(message.find(part) != std::string::npos, message + " does not say " + part);
  if (offends) return;
  check(message.find("rank 1 refused the call") != std::string::npos, message);
  check(tutti_frameworks_last_error()->rank == kOffender, "the culprit");
}

// A call of cross_device with one value, and what may be wrong about it.
struct Call {
  tutti_cross_device* ops;
  Scalar own{1};
  const char* op = "sum";
  const char* device = kDevice;
  int32_t dtype = TUTTI_F32;
  const char* implementation = "auto";

  tutti_code reduce(tutti_results** results) const {
    const tutti_component component = wrong_component();
    const tutti_reduction reduction{&component, 1, {&device, 1}};
    const tutti_communication_options options{0, 0, 0, implementation, 0};
    return tutti_cross_device_reduce(ops, op, &reduction, &options, results);
  }
  tutti_code batch_reduce(tutti_results** results) const {
    const tutti_component component = wrong_component();
    const tutti_reduction reductions[] = {{&component, 1, {&device, 1}}};
    const tutti_communication_options options{0, 0, 0, implementation, 0};
    return tutti_cross_device_batch_reduce(ops, op, reductions, 1, &options, results);
  }
  tutti_code broadcast(tutti_results** results) const {
    const tutti_component component = wrong_component();
    const tutti_devices devices{&device, 1};
    const tutti_communication_options options{0, 0, 0, implementation, 0};
    return tutti_cross_device_broadcast(ops, &component, &devices, 0, &options, results);
  }

 private:
  tutti_component wrong_component() const {
    tutti_component component = own.component();
    component.elements.dtype = dtype;
    return component;
  }
};

void check_calls(const Group& group, const Call& wrong, const std::string& part) {
  tutti_results* results = nullptr;
  const Call right{.ops = wrong.ops, .own = Scalar(static_cast<float>(group.rank() + 1))};
  const auto check_function = [&](auto function) {
    check_refusal(
        group, [&] { return (wrong.*function)(&results); },
        [&] { return (right.*function)(&results); }, part);
    check(right.reduce(&results) == TUTTI_OK, "the next call");
    check(read(results) == 6, "the next sum, after " + part);
  };
  check_function(&Call::reduce);
  check_function(&Call::batch_reduce);
  if (std::string(wrong.op) == "sum") check_function(&Call::broadcast);
}

TEST_F(RefusalTest, OfAReduction) {
  EXPECT_EQ(mesh_.run("reduction", {2, 1},
                      [](const RankContext& context) {
                        const Group group = context.join();
                        tutti_cross_device* ops = make_ops(group);
                        check_calls(group, {.ops = ops, .op = "MAX"}, "'MAX' is none of");
                        check_calls(group, {.ops = ops, .device = "over there"}, "'over there' is");
                        check_calls(group, {.ops = ops, .dtype = 77}, "dtype 77");
                        check_calls(group, {.ops = ops, .implementation = "smoke"}, "'smoke' is");
                        tutti_cross_device_free(ops);
                      }),
            "");
}

TEST_F(RefusalTest, OfANullPointer) {
  EXPECT_EQ(mesh_.run("null", {2, 1},
                      [](const RankContext& context) {
                        const Group group = context.join();
                        tutti_cross_device* ops = make_ops(group);
                        const Call right{.ops = ops};
                        tutti_results* results = nullptr;
                        const Wrong others = [&] { return right.reduce(&results); };
                        check_refusal(
                            group, [&] { return right.reduce(nullptr); }, others,
                            "NULL was passed for 'results'");
                        check_refusal(
                            group,
                            [&] {
                              return tutti_cross_device_reduce(ops, "sum", nullptr, nullptr,
                                                               &results);
                            },
                            others, "NULL was passed for 'reduction'");
                        check(right.reduce(&results) == TUTTI_OK && read(results) == 3, "the next");
                        tutti_cross_device_free(ops);
                      }),
            "");
}

TEST_F(RefusalTest, OfShapesThatDiffer) {
  EXPECT_EQ(mesh_.run("shapes", {2, 1},
                      [](const RankContext& context) {
                        const Group group = context.join();
                        tutti_cross_device* ops = make_ops(group);
                        const float numbers[3] = {1, 1, 1};
                        tutti_results* results = nullptr;
                        const auto reduce = [&](int64_t size) {
                          const tutti_tensor_view view{numbers, &size, 1, TUTTI_F32};
                          const tutti_component component{view, 0, {}, nullptr, 0, kDevice};
                          const tutti_reduction reduction{&component, 1, {&kDevice, 1}};
                          return tutti_cross_device_reduce(ops, "sum", &reduction, nullptr,
                                                           &results);
                        };
                        check(reduce(group.rank() == kOffender ? 3 : 2) == TUTTI_INVALID_ARGUMENT,
                              "the code");
                        const std::string message = tutti_frameworks_last_error()->message;
                        for (const char* part : {"rank 0 has", "f32[2]", "rank 1 has", "f32[3]"})
                          check(message.find(part) != std::string::npos, message);
                        check(reduce(2) == TUTTI_OK && read(results) == 3, "the next");
                        tutti_cross_device_free(ops);
                      }),
            "");
}

TEST_F(RefusalTest, OfABinding) {
  EXPECT_EQ(mesh_.run("binding", {2, 1},
                      [](const RankContext& context) {
                        const Group group = context.join();
                        tutti_cross_device* ops = make_ops(group);
                        const Call right{.ops = ops};
                        tutti_results* results = nullptr;
                        check_refusal(
                            group, [&] { return tutti_frameworks_refuse(group.get(), "no pair"); },
                            [&] { return right.reduce(&results); }, "no pair");
                        check(right.reduce(&results) == TUTTI_OK && read(results) == 3, "the next");
                        tutti_cross_device_free(ops);
                      }),
            "");
}

tutti_code average(const Group& group, const char* none, int32_t dtype, tutti_results** results) {
  const Scalar own(static_cast<float>(group.rank() + 1));
  tutti_component component = own.component();
  component.elements.dtype = dtype;
  const tutti_gradient gradient{&component, "w"};
  const size_t length = 1;
  const tutti_average_options options{none, 1, 1, 1, nullptr, nullptr, nullptr, nullptr, 0};
  return tutti_average_gradients(&gradient, &length, 1, &options, group.get(), results);
}

TEST_F(RefusalTest, OfAnAverage) {
  EXPECT_EQ(
      mesh_.run("average", {2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  tutti_results* results = nullptr;
                  const Wrong right = [&] { return average(group, "error", TUTTI_F32, &results); };
                  const auto check_wrong = [&](const Wrong& wrong, const std::string& part) {
                    check_refusal(group, wrong, right, part);
                    check(right() == TUTTI_OK && read(results) == 2, "after " + part);
                  };
                  check_wrong([&] { return average(group, "drop", TUTTI_F32, &results); },
                              "'drop' is no policy");
                  check_wrong([&] { return average(group, "error", 77, &results); }, "dtype 77");
                  check_wrong([&] { return average(group, "error", TUTTI_F32, nullptr); },
                              "NULL was passed for 'results'");
                  check_wrong([&] { return tutti_frameworks_refuse(group.get(), "no list"); },
                              "no list");
                }),
      "");
}

}  // namespace
}  // namespace tutti
