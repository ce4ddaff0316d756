// What `tutti top` shows: differences of two reports of the mesh. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/diagnosis/diagnosis.h"
#include "proto/mesh.pb.h"

namespace tutti {

// By what the tables of jobs and ranks are sorted: names ascending, the others the most first.
enum class TopOrder : uint8_t { name, operations, tensors, failures };
TopOrder after(TopOrder order);  // The next one; after the last, the first.

struct TopView {
  const v1::StatusReply& before;
  const v1::StatusReply& after;
  const MeshDiagnosis& diagnosis;  // Of `after`.
  double seconds = 1;              // Between the two.
  std::string job;                 // Show the ranks of this job alone; empty: of all.
  size_t columns = 80;             // Of the terminal: longer lines are cut. 0: no line is.
  // The terminal's: further lines are left out, and the last one explains the keys. 0: neither.
  size_t lines = 0;
  std::string error;  // Why there is no newer report; empty: these are new.
  TopOrder order = TopOrder::name;
  bool colors = false;  // Headers bold, what is wrong yellow, the error red.
};
// Tables of jobs, their ranks, and hosts; above them the error. Below the jobs, what is wrong with
// them.
std::string top_text(const TopView& view);

}  // namespace tutti
