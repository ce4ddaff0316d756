// ReduceOp, CommunicationOptions and names of devices: texts, defaults and refusals.
#include "client/faces/cross_device/options.h"

#include "tests/cross_device/values.h"

namespace tutti::cross_device {
namespace {

TEST(ReduceOpText, IsReadInEitherCase) {
  EXPECT_EQ(*parse_reduce_op("sum"), ReduceOp::sum);
  EXPECT_EQ(*parse_reduce_op("Mean"), ReduceOp::mean);
  EXPECT_TRUE(fails(parse_reduce_op("MAX").status(), Code::invalid_argument, "'MAX'"));
  EXPECT_TRUE(fails(parse_reduce_op("").status(), Code::invalid_argument, "none of SUM, MEAN"));
}

TEST(Options, Implementation) {
  EXPECT_EQ(*parse_implementation("ring"), Implementation::ring);
  EXPECT_EQ(*parse_implementation("Auto"), Implementation::automatic);
  EXPECT_EQ(*parse_implementation("NCCL"), Implementation::nccl);
  EXPECT_TRUE(fails(parse_implementation("smoke").status(), Code::invalid_argument, "'smoke'"));
}

TEST(Options, Check) {
  EXPECT_TRUE(CommunicationOptions().check().ok());
  EXPECT_TRUE(
      fails(CommunicationOptions{.bytes_per_pack = -1}.check(), Code::invalid_argument, "-1"));
  EXPECT_TRUE(fails(CommunicationOptions{.timeout_seconds = -0.5}.check(), Code::invalid_argument,
                    "timeout_seconds"));
  EXPECT_FALSE(CommunicationOptions{.timeout_seconds = NAN}.check().ok());
  EXPECT_TRUE(CommunicationOptions{.timeout_seconds = 0}.check().ok());
}

TEST(Options, MergeTakesWhatIsNotTheDefault) {
  const CommunicationOptions set{5, 2.0, Implementation::ring};
  EXPECT_EQ(set.merge({}), set);
  EXPECT_EQ(CommunicationOptions().merge(set), set);
  const CommunicationOptions other{7, 1.0, Implementation::nccl};
  EXPECT_EQ(set.merge(other), other);
}

TEST(Devices, AreReadInTensorFlowsForms) {
  const auto same = [](const std::string& text) { return to_string(*parse_device(text)); };
  EXPECT_EQ(same("/job:worker/replica:0/task:1/device:GPU:3"), "/job:worker/task:1/device:GPU:3");
  EXPECT_EQ(same("/device:CPU:0"), "/device:CPU:0");
  EXPECT_EQ(same("GPU:2"), "/device:GPU:2");
  EXPECT_EQ(same("/cpu:0"), "/device:CPU:0");
  EXPECT_EQ(same("cpu"), "/device:CPU:0");
  EXPECT_EQ(*parse_device("gpu:1"), *parse_device("/device:GPU:1"));
}

TEST(Devices, OtherTextsAreRefused) {
  for (const char* text : {"", "/", "5", "CPU:", "CPU:x", "CPU:-1", "/task:1", "/job:/device:CPU:0",
                           "/device:CPU:0/device:CPU:1", "/device:CPU:0/", "cpu:99999999999",
                           "/task:x/cpu:0", "what ever", "/device:"})
    EXPECT_TRUE(fails(parse_device(text).status(), Code::invalid_argument, "is no device")) << text;
}

}  // namespace
}  // namespace tutti::cross_device
