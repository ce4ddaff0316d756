// What `tutti bench` runs as each rank: cases of collectives, their times, and a check of every
// result by value (bench_math.h). Rank 0 reports.
#pragma once

#include "daemon/bench/bench_math.h"
#include "daemon/bench/bench_rank.h"
