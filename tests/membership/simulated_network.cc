#include "tests/membership/simulated_network.h"

#include <algorithm>
#include <utility>

namespace tutti::simulated {

WorkerStream Network::dial(int worker, int agent) {
  const WorkerStream id = ++last_;
  streams_[id] = {.worker = worker, .agent = agent};
  if (ends_.agent(agent).alive)
    timeline_.after(latency(), &ends_.agent(agent), [this, id] { on_dialled(id); });
  else
    timeline_.after(latency(), &ends_.worker(worker), [this, id] { break_at_worker(id); });
  timeline_.after(2 * kNoticed, &ends_.worker(worker), [this, id] {
    if (!streams_.at(id).opened) break_at_worker(id);
  });
  return id;
}

void Network::on_dialled(WorkerStream id) {
  Stream& stream = streams_.at(id);
  if (!stream.at_worker) return;
  const Process& worker = ends_.worker(stream.worker);
  stream.at_agent = ends_.accept(stream.agent, id);
  stream.worker_has_all = timeline_.now() + latency();
  if (stream.at_agent)
    timeline_.at(stream.worker_has_all, &worker, [this, id] { on_accepted(id); });
  else
    timeline_.at(stream.worker_has_all, &worker, [this, id] { break_at_worker(id); });
}

void Network::on_accepted(WorkerStream id) {
  Stream& stream = streams_.at(id);
  if (!stream.at_worker) return;
  stream.opened = true;
  ends_.opened(stream.worker);
}

void Network::to_agent(WorkerStream id, v1::WorkerMessage message) {
  Stream& stream = streams_.at(id);
  if (tampering_.to_agent && !tampering_.to_agent(message)) return;
  stream.agent_has_all = std::max(stream.agent_has_all, timeline_.now() + latency());
  timeline_.at(stream.agent_has_all, &ends_.agent(stream.agent),
               [this, id, message = std::move(message)] {
                 const Stream& to = streams_.at(id);
                 if (to.at_agent) ends_.at_agent(to.agent, id, message);
               });
}

void Network::to_worker(WorkerStream id, v1::CoordinatorMessage message) {
  Stream& stream = streams_.at(id);
  if (tampering_.to_worker && !tampering_.to_worker(message)) return;
  stream.worker_has_all = std::max(stream.worker_has_all, timeline_.now() + latency());
  timeline_.at(stream.worker_has_all, &ends_.worker(stream.worker),
               [this, id, message = std::move(message)] {
                 const Stream& to = streams_.at(id);
                 if (to.at_worker) ends_.at_worker(to.worker, message);
               });
}

void Network::drop(WorkerStream id) {
  Stream& stream = streams_.at(id);
  stream.at_worker = false;
  const Ms noticed = std::max(stream.agent_has_all, timeline_.now() + latency());
  timeline_.at(noticed, &ends_.agent(stream.agent), [this, id] { break_at_agent(id); });
}

void Network::cut(WorkerStream id) {
  const Stream& stream = streams_.at(id);
  timeline_.after(timeline_.random.below(kNoticed), &ends_.agent(stream.agent),
                  [this, id] { break_at_agent(id); });
  timeline_.after(timeline_.random.below(kNoticed), &ends_.worker(stream.worker),
                  [this, id] { break_at_worker(id); });
}

void Network::close_at_agent(WorkerStream id) {
  Stream& stream = streams_.at(id);
  stream.at_agent = false;
  const Ms noticed = std::max(stream.worker_has_all, timeline_.now() + latency());
  timeline_.at(noticed, &ends_.worker(stream.worker), [this, id] { break_at_worker(id); });
}

void Network::break_all_of_agent(int agent, bool dies, Ms noticed_within) {
  for (auto& [id, stream] : streams_) {
    if (stream.agent != agent) continue;
    if (dies) stream.at_agent = false;
    if (!stream.at_worker) continue;
    timeline_.after(timeline_.random.between(1, static_cast<int>(noticed_within)),
                    &ends_.worker(stream.worker), [this, id = id] { break_at_worker(id); });
  }
}

void Network::break_all_of_worker(int worker, bool dies, Ms noticed_within) {
  for (auto& [id, stream] : streams_) {
    if (stream.worker != worker) continue;
    if (dies) stream.at_worker = false;
    if (!stream.at_agent) continue;
    timeline_.after(timeline_.random.between(1, static_cast<int>(noticed_within)),
                    &ends_.agent(stream.agent), [this, id = id] { break_at_agent(id); });
  }
}

bool Network::is_quiet(WorkerStream id) const {
  const Stream& stream = streams_.at(id);
  return stream.at_worker && stream.at_agent && stream.opened &&
         timeline_.now() > stream.agent_has_all && timeline_.now() > stream.worker_has_all;
}

void Network::break_at_worker(WorkerStream id) {
  Stream& stream = streams_.at(id);
  if (!std::exchange(stream.at_worker, false)) return;
  if (stream.at_agent)
    timeline_.after(timeline_.random.between(1, kNoticed), &ends_.agent(stream.agent),
                    [this, id] { break_at_agent(id); });
  ends_.broken(stream.worker);
}

void Network::break_at_agent(WorkerStream id) {
  Stream& stream = streams_.at(id);
  if (!std::exchange(stream.at_agent, false)) return;
  if (stream.at_worker)
    timeline_.after(timeline_.random.between(1, kNoticed), &ends_.worker(stream.worker),
                    [this, id] { break_at_worker(id); });
  ends_.detached(stream.agent, id);
}

}  // namespace tutti::simulated
