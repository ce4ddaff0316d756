// Inside the room: the state of all ranks over symbols, and the rules each step must keep. Who
// drives it decides the order; every answer but OK is a fault of the schedule.
//
// A send lends the memory of its chunk until the receiver has taken it. The lender may change the
// chunk only when that is proven: when the value it holds or has just received descends from a
// value of that chunk which the receiver made after taking. Vector clocks a rank and chunk decide
// it. They follow one chunk alone, which is stricter than a rank's order of steps: an engine may
// move on with one chunk while another waits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/schedule/schedule.h"
#include "daemon/schedule/symbols.h"

namespace tutti {

class Prover {
 public:
  explicit Prover(const Plan& plan);

  Status send(int from, int to, int chunk);
  bool has_message(int from, int to) const;
  // The next message from `from`, which must be there.
  Status receive(int at, int from, int chunk, bool reduces);
  // A move of memory inside a host, taken at once: it lends nothing.
  Status copy(int at, int from, int chunk, bool reduces);
  Status finish(int rank, int chunk);

  // How many messages were sent / taken so far.
  int sent(int from, int to) const;
  int taken(int from, int to) const;

  // After the last step: no message left over, and everyone holds what the plan promises.
  Status conclude() const;
  Cost cost() const;

 private:
  // A copy that may still be read by `to`. `taken_at`: the receiver's clock after it took it; 0:
  // not yet.
  struct Loan {
    int to;
    uint32_t taken_at;
  };
  struct Value {
    int expression = Symbols::kNothing;
    std::vector<uint32_t> clock;  // By rank: how many of its changes of this chunk are known of.
    std::vector<Loan> loans;
  };
  struct Message {
    int chunk;
    int expression;
    std::vector<uint32_t> clock;
    size_t loan;  // Index in the sender's value.
    int depth;    // Of the sender when it sent.
  };
  struct Channel {
    std::vector<Message> messages;
    size_t taken = 0;
  };

  Value& value(int rank, int chunk) { return values_[rank * chunks_ + chunk]; }
  const Value& value(int rank, int chunk) const { return values_[rank * chunks_ + chunk]; }
  const Channel& channel(int from, int to) const { return channels_[from * world_size_ + to]; }

  Status may_leave(int from, int chunk) const;
  Status change(int rank, int chunk, const Value& incoming, bool reduces);
  Status unlent(int rank, int chunk) const;
  Status conclude_chunk(int chunk) const;

  const Plan& plan_;
  const int world_size_;
  const int chunks_;
  const bool combines_;
  Symbols symbols_;
  std::vector<Value> values_;      // By rank and chunk.
  std::vector<Channel> channels_;  // By from and to.
  std::vector<int> finisher_;      // By chunk: the rank that finished it, or -1.
  std::vector<int> depth_;         // By rank: the longest chain of messages behind its last step.
  std::vector<int> sent_chunks_;   // By rank.
  std::vector<int> received_chunks_;
};

}  // namespace tutti
