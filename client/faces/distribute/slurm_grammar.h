// The lists in which Slurm writes hosts and tasks. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/faces/distribute/cluster_spec.h"

namespace tutti::distribute {

// "n[1-2],m5,o[3-4,6,7-9]" -> n1 n2 m5 o3 o4 o6 o7 o8 o9: a name may end in one pair of brackets
// with numbers and ranges. Numbers keep the width of their range's first one: "n[008-011]". Order
// and duplicates are kept. INVALID_ARGUMENT: another form, a descending range, more than kTasksMax
// entries.
Result<std::vector<std::string>> expand_hostlist(const std::string& hostlist);

// "3(x2),2,1" -> 3 3 2 1: tasks of each host, in the order of the host list. INVALID_ARGUMENT:
// another form, more than kTasksMax entries.
Result<std::vector<int>> expand_tasks_per_node(const std::string& tasks_per_node);

}  // namespace tutti::distribute
