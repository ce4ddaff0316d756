// Small functions on the values that the rules of membership are about.
#pragma once

#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

inline constexpr size_t kHostBytesMax = 255;
inline constexpr size_t kAddressBytesMax = 512;

inline std::string quoted(const std::string& job) { return "job \"" + job + "\""; }

// "(host b, pid 4711)". `Who` is a JoinRank or a RosterRank.
template <class Who>
std::string location_of(const Who& who) {
  return "(host " + who.host() + ", pid " + std::to_string(who.pid()) + ")";
}

// `Who` is an Owner or a Pass.
template <class Who>
bool is_owner(const v1::Owner& owner, const Who& who) {
  return owner.uid() == who.uid() && owner.subject() == who.subject();
}

// Under which the state of a job is saved: what one user says of a job never counts for another's
// of the same name.
inline std::string key_of(const v1::Owner& owner, const std::string& job) {
  return std::to_string(owner.uid()) + "\n" + owner.subject() + "\n" + job;
}

// `Who` is a JoinRank or a RosterRank. What a worker says of itself is kept, and sent to others.
template <class Who>
bool is_short(const Who& who) {
  return who.host().size() <= kHostBytesMax && who.address().size() <= kAddressBytesMax;
}

}  // namespace tutti
