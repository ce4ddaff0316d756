// The launcher: an ephemeral mesh on this machine and the ranks that run on it.
//
// LocalMesh (local_mesh.h) starts one agent per host, RankProcesses (rank_processes.h) one command
// per rank; ChildProcesses (child_processes.h) owns all processes and ends them. gpu_shares.h
// divides the machine's GPUs among the ranks.
#pragma once

#include "daemon/launch/child_processes.h"
#include "daemon/launch/gpu_shares.h"
#include "daemon/launch/host_network.h"
#include "daemon/launch/local_mesh.h"
#include "daemon/launch/rank_processes.h"
