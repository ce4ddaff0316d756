// Ranges of ports, as they are written in settings.
#include "daemon/base/port_range.h"

#include <gtest/gtest.h>

#include "daemon/base/settings.h"

namespace tutti {
namespace {

TEST(PortRange, IsReadFromText) {
  EXPECT_EQ(*parse_port_range("7610-7700"), (PortRange{7610, 7700}));
  EXPECT_EQ(*parse_port_range("1-65535"), (PortRange{1, 65535}));
  EXPECT_EQ(*parse_port_range("7610"), (PortRange{7610, 7610}));
  EXPECT_EQ(parse_port_range("7610-7700")->count(), 91u);
}

TEST(PortRange, IsLeftToTheKernelWithoutText) {
  EXPECT_EQ(*parse_port_range(""), (PortRange{0, 0}));
  EXPECT_EQ(parse_port_range("")->count(), 1u);
}

TEST(PortRange, RefusesWhatIsNone) {
  for (const char* text : {"abc", "7700-7610", "0-5", "1-65536", "7610-", "-7700", "-",
                           "7610 - 7700", "7610-7700x", "+7610", "7610-7620-7630", "7610,7620"}) {
    const Status status = parse_port_range(text).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << text;
    EXPECT_EQ(status.message(), "'" + std::string(text) +
                                    "': expected ports from 1 to 65535, the lower first, such as "
                                    "7610-7700");
  }
}

TEST(PortRange, IsCheckedWithTheSetting) {
  Settings settings;
  const Status status = set_setting(settings, "data_ports", "7700-7610");
  EXPECT_EQ(status.message(),
            "setting data_ports = '7700-7610': expected ports from 1 to 65535, the lower first, "
            "such as 7610-7700");
  EXPECT_EQ(settings.data_ports, "");
  EXPECT_TRUE(set_setting(settings, "data_ports", "7610-7700").ok());
}

}  // namespace
}  // namespace tutti
