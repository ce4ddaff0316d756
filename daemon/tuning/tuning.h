// What `auto` means between hosts: a model of what an operation costs (cost_model.h), what workers
// measure while operations run (measurement.h), and the choice that both lead to (tuner.h).
//
// Pure: times come in as numbers, and nothing here sends, waits or reads a clock.
#pragma once

#include "daemon/tuning/cost_model.h"
#include "daemon/tuning/measurement.h"
#include "daemon/tuning/tuner.h"
