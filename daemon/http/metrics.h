// The figures of a node in Prometheus' text format. Pure.
#pragma once

#include <span>
#include <string>

#include "daemon/http/http.h"

namespace tutti {

// `named`: also what names jobs and users. Series of what is not in the report are not there.
std::string metrics_text(const v1::AgentReport& report, std::span<const RecordedJob> recorded,
                         bool named);

}  // namespace tutti
