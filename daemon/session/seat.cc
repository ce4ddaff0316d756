// A session's seat at the board.
#include <fcntl.h>

#include "daemon/session/socket_session.h"

namespace tutti {

Status SocketSession::sit_down(std::shared_ptr<Board> board, uint32_t rank) {
  Fd segment(fcntl(memory_.get(), F_DUPFD_CLOEXEC, 0));
  if (!segment.valid()) return errno_status("cannot share a segment");
  board->sit_down(rank, *this, std::move(segment));
  board_ = std::move(board);
  rank_on_board_ = rank;
  return {};
}

void SocketSession::take_from_board(const Request& request, uint32_t ring_head,
                                    uint32_t waited_ms) {
  take_until(ring_head);
  if (!stopped_) static_cast<void>(take(request, waited_ms));
}

void SocketSession::fail_on_board(uint32_t slot, const Status& status) {
  if (slot >= kRingSlots || pending_[slot]) return;
  ++failures_on_board_;
  post(slot, status, 0);
}

Status SocketSession::stuck(const std::string& what) const {
  return deadline_exceeded(what + ": " + who() + " has not folded its part",
                           {static_cast<int>(rank_on_board_), host()});
}

Status share_board(Loop& loop, std::span<Session* const> sessions) {
  if (sessions.size() > kBoardRanks) return {};
  Result<std::shared_ptr<Board>> board = Board::make(loop, static_cast<uint32_t>(sessions.size()));
  if (!board.ok()) return board.status();
  for (uint32_t rank = 0; rank < sessions.size(); ++rank) {
    auto* session = dynamic_cast<SocketSession*>(sessions[rank]);
    require(session != nullptr, "a session is one of open_session()'s");
    if (Status seated = session->sit_down(*board, rank); !seated.ok()) return seated;
  }
  return {};
}

}  // namespace tutti
