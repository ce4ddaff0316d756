#include "daemon/control/elector.h"

#include <spdlog/spdlog.h>

namespace tutti {
namespace {

constexpr Millis kWatchAgain{500};
constexpr Millis kFarewell{300};  // For giving up the lease.

template <class... Handlers>
struct Cases : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Cases(Handlers...) -> Cases<Handlers...>;

Keys::Answer answer_of(const Result<Keys::Entry>& entry) {
  return entry.ok() ? Keys::Answer{.status = {}, .entries = {*entry}}
                    : Keys::Answer{.status = entry.status(), .entries = {}};
}

}  // namespace

Elector::Elector(std::unique_ptr<KeyStore> store, const Election::Options& options, Events events)
    : store_(std::move(store)),
      options_(options),
      events_(std::move(events)),
      reachability_(store_->name()),
      election_(options, store_->name()) {
  watch_thread_ = std::thread([this] { watch(); });
  thread_ = std::thread([this] { run(); });
}

// The lease is given up if the store answers at once.
Elector::~Elector() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    woken_.notify_all();
    woken_.wait_for(lock, kFarewell, [this] { return stopped_; });
  }
  store_->cancel();
  thread_.join();
  watch_thread_.join();
}

std::vector<v1::JobState> Elector::load() {
  const std::lock_guard lock(mutex_);
  require(!leads_.empty(), "load() follows on_lead()");
  Election::Lead lead = std::move(leads_.front());
  leads_.pop_front();
  term_ = lead.term;
  return std::move(lead.states);
}

bool Elector::save(const std::vector<v1::JobState>& states) {
  const std::lock_guard lock(mutex_);
  unsaved_.emplace_back(term_, states);
  wake_ = true;
  woken_.notify_all();
  return false;
}

std::string Elector::obstacle() const {
  if (reachability_.is_reached()) return {};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(reachability_.lost_for());
  const std::string why = reachability_.why();
  return store_->name() + " has not answered for " + std::to_string(seconds.count()) + " s" +
         (why.empty() ? "" : " (" + why + ")") + "; joins wait until it does";
}

void Elector::run() {
  for (;;) {
    const TimePoint next = round();
    std::unique_lock lock(mutex_);
    woken_.wait_until(lock, next, [this] { return wake_ || stopping_; });
    wake_ = false;
    if (stopping_) break;
  }
  if (election_.lease() != 0) (void)store_->revoke(election_.lease());
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  woken_.notify_all();
}

void Elector::wake() {
  const std::lock_guard lock(mutex_);
  wake_ = true;
  woken_.notify_all();
}

// Only wakes the other thread, which then looks for itself: so nothing is lost between two watches.
void Elector::watch() {
  for (;;) {
    (void)store_->watch(
        options_.prefix + "/coordinator",
        {.on_open = [this] { wake(); }, .on_change = [this](const auto&, const auto&) { wake(); }});
    std::unique_lock lock(mutex_);
    if (woken_.wait_for(lock, kWatchAgain, [this] { return stopping_; })) return;
  }
}

TimePoint Elector::round() {
  take_unsaved();
  Election::Step step = election_.begin(Clock::now());
  while (step.request) {
    for (const Election::Event& event : step.events) on_event(event);
    const Keys::Answer answer = ask(*step.request, step.at);
    take_unsaved();
    step = election_.answered(answer, Clock::now());
  }
  if (step.done.ok())
    reachability_.reached();
  else if (step.done.code() != Code::cancelled)
    reachability_.lost(step.done);
  for (const Election::Event& event : step.events) on_event(event);
  return step.at;
}

Keys::Answer Elector::ask(const Keys::Request& request, TimePoint deadline) {
  store_->set_deadline(deadline);
  return std::visit(
      Cases{[&](const Keys::Grant&) {
              const Result<Keys::Lease> lease = store_->grant(options_.ttl);
              return Keys::Answer{
                  .status = lease.status(), .lease = lease.ok() ? *lease : 0, .entries = {}};
            },
            [&](const Keys::KeepAlive& of) {
              return Keys::Answer{.status = store_->keep_alive(of.lease), .entries = {}};
            },
            [&](const Keys::Create& what) {
              return answer_of(store_->create(what.key, what.value, what.lease));
            },
            [&](const Keys::Transaction& what) {
              const Result<int64_t> done = store_->write(what.fences, what.writes);
              return Keys::Answer{
                  .status = done.status(), .entries = {}, .revision = done.ok() ? *done : 0};
            },
            [&](const Keys::List& what) {
              const auto found = store_->list(what.prefix);
              return found.ok() ? Keys::Answer{.status = {}, .entries = *found}
                                : Keys::Answer{.status = found.status(), .entries = {}};
            }},
      request);
}

void Elector::take_unsaved() {
  const std::lock_guard lock(mutex_);
  for (const auto& [term, states] : std::exchange(unsaved_, {})) election_.save(term, states);
}

void Elector::on_event(const Election::Event& event) {
  std::visit(Cases{[&](const Election::Lead& lead) { on_lead(lead); },
                   [&](const Election::Follow& other) { events_.on_follow(other.address); },
                   [&](const Election::StandBy& stand_by) { on_stand_by(stand_by); },
                   [&](const Election::Saved& saved) { events_.on_saved(saved.state); },
                   [&](const Election::HostTaken& taken) {
                     spdlog::warn(
                         "the agent at {}, too, calls its host {}, or did until {} s ago; each "
                         "needs a name of its own (host)",
                         taken.address, options_.host,
                         std::chrono::duration_cast<std::chrono::seconds>(options_.ttl).count());
                   }},
             event);
}

void Elector::on_lead(const Election::Lead& lead) {
  {
    const std::lock_guard lock(mutex_);
    leads_.push_back(lead);
  }
  spdlog::info("coordinates: elected through {}, with {} jobs", store_->name(), lead.states.size());
  events_.on_lead();
}

void Elector::on_stand_by(const Election::StandBy& stand_by) {
  const std::string why = stand_by.why.empty() ? obstacle() : stand_by.why;
  if (stand_by.deposed) spdlog::warn("does not coordinate any more: {}", why);
  events_.on_stand_by(why);
}

}  // namespace tutti
