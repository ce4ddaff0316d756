// Judges a job, a node and a mesh by the reports of agents and the traces of ranks. Commands and
// the page show what this room finds, and judge nothing themselves. Pure: it asks and reads
// nothing.
#pragma once

#include "daemon/diagnosis/describe.h"           // IWYU pragma: export
#include "daemon/diagnosis/job_diagnosis.h"      // IWYU pragma: export
#include "daemon/diagnosis/job_owners.h"         // IWYU pragma: export
#include "daemon/diagnosis/mesh_diagnosis.h"     // IWYU pragma: export
#include "daemon/diagnosis/node_diagnosis.h"     // IWYU pragma: export
#include "daemon/diagnosis/traced_operations.h"  // IWYU pragma: export
