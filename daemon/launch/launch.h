// An ephemeral mesh on this machine and the processes that run on it: agents, one command per rank,
// their networks and output, and which failure came first.
//
// LocalMesh (local_mesh.h) starts the agents, Ranks (ranks.h) the ranks; ChildProcesses (process.h)
// owns what both start and ends it.
#pragma once

#include "daemon/launch/local_mesh.h"
#include "daemon/launch/network.h"
#include "daemon/launch/process.h"
#include "daemon/launch/ranks.h"
