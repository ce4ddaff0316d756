// The choice of a strategy between hosts for `auto`: a cost model of operations (cost_model.h),
// measurements of running operations and links (measurement.h), and the choice based on both
// (tuner.h). Pure: no IO, no clock; the caller passes all times.
#pragma once

#include "daemon/tuning/cost_model.h"
#include "daemon/tuning/measurement.h"
#include "daemon/tuning/tuner.h"
