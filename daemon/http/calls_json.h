// What ranks have called last, as the page reads it. Pure.
#pragma once

#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

// A JSON list with an object for each running job and node: [{"job":...,"uid":...,"host":...,
// "epoch":...,"calls":[{"rank":...,"group":...,"number":...,
// "collective":...,"bytes":...,"begun_us":...,"duration_us":...,"code":"OK"}]}]. Calls that are
// under way have no duration and no code.
std::string calls_json(const v1::TraceReply& reply);

}  // namespace tutti
