// Inside the room: the state of all hosts over symbols, and the rules that each step must keep. The
// caller chooses the order of steps; every Status but OK is a fault of the schedule.
//
// A send lends the memory of its chunk until the receiver has taken it. The sender may change the
// chunk only when that is proven: when the value it holds or has just received descends from a
// value of that chunk which the receiver made after taking. This is decided by vector clocks, one
// for each host and chunk. A clock follows one chunk alone, which is stricter than a host's order
// of steps: an engine may move on with one chunk while another waits. What is packed lends nothing.
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

  Status send(int from, const Step& step);
  bool has_message(int from, int to) const;
  // Takes the next message from the peer; has_message() must hold. `step`: a recv or recv_reduce.
  Status receive(int at, const Step& step);
  Status finish(int host, int chunk);
  // `step`: a take or an add.
  Status contribute(int host, const Step& step);
  Status pack(int host, const Step& step);
  Status notify(int from, int to);
  Status await(int at, int from);

  // After the last step: no message left over, everyone holds what the plan promises, and knows
  // that everyone has started.
  Status conclude() const;
  Cost cost() const;

 private:
  // A send whose memory `to` may still read. `taken_at`: the receiver's clock after it took the
  // message; 0: not yet.
  struct Loan {
    int to;
    uint32_t taken_at;
  };
  struct Value {
    int expression = Symbols::kNothing;
    std::vector<int> packed;  // Side by side, where there is no expression.
    std::vector<uint32_t>
        clock;  // By host: how many of its changes of this chunk precede this value.
    std::vector<Loan> loans;
  };
  // What happened before a host's next step: the longest chain of messages, and the hosts that have
  // started.
  struct Past {
    int depth = 0;
    int data_depth = 0;  // Counting the messages that carry a chunk.
    std::vector<bool> started;
  };
  struct Message {
    int chunk;                     // kEmpty: none.
    std::vector<int> expressions;  // One, or those that are packed.
    std::vector<uint32_t> clock;
    size_t loan;  // Index in the sender's value; kNoLoan: none.
    Past past;    // Of the sender when it sent.
  };
  static constexpr int kEmpty = -1;
  static constexpr size_t kNoLoan = static_cast<size_t>(-1);
  struct Channel {
    std::vector<Message> messages;
    size_t taken = 0;
  };

  Value& value(int host, int chunk) { return values_[host * chunks_ + chunk]; }
  const Value& value(int host, int chunk) const { return values_[host * chunks_ + chunk]; }
  const Channel& channel(int from, int to) const { return channels_[from * hosts_ + to]; }

  Status may_leave(int from, int chunk) const;
  Status change(int host, const Step& step, const Message& incoming);
  Status in_range(int host, const Step& step) const;
  Status unlent(int host, int chunk) const;
  void learn(int host, const Message& message);
  Status conclude_chunk(int chunk) const;
  Status conclude_agreement() const;
  Status complete(int host, int chunk);
  int contributions(int chunk) const;
  int all_contributions() const;
  int in_rank_order(int chunk);

  const Plan& plan_;
  const int hosts_;
  const int chunks_;
  const bool combines_;
  Symbols symbols_;
  std::vector<Value> values_;      // By host and chunk.
  std::vector<Channel> channels_;  // By from and to.
  std::vector<int> finisher_;      // By chunk: the host that finished it, or -1.
  std::vector<Past> past_;         // By host.
  std::vector<int> sent_chunks_;   // By host.
  std::vector<int> received_chunks_;
};

}  // namespace tutti
