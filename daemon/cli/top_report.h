// What `tutti top` shows: differences of two reports of the mesh. Pure.
#pragma once

#include <string>

#include "daemon/diagnosis/diagnosis.h"
#include "proto/mesh.pb.h"

namespace tutti {

struct TopView {
  const v1::StatusReply& before;
  const v1::StatusReply& after;
  const MeshDiagnosis& diagnosis;  // Of `after`.
  double seconds = 1;              // Between the two.
  std::string job;                 // Show the ranks of this job alone; empty: of all.
  size_t columns = 80;             // Of the terminal: longer lines are cut. 0: no line is.
  size_t lines = 0;                // Of the terminal: further lines are left out. 0: none is.
  std::string error;               // Why there is no newer report; empty: these are new.
};
// Tables of jobs, their ranks, and hosts; above them the error. Below the jobs, what is wrong with
// them.
std::string top_text(const TopView& view);

}  // namespace tutti
