// What `tutti bench` runs as each rank: cases (bench_case.h), their times (bench_rank.h) and the
// output of rank 0 (bench_report.h).
#pragma once

#include "daemon/bench/bench_case.h"
#include "daemon/bench/bench_rank.h"
#include "daemon/bench/bench_report.h"
