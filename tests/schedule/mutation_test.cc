// A checker that refuses nothing proves nothing: break valid schedules in every way that does harm
// and demand that each is refused; then meet each fault it can name by hand.
#include <gmock/gmock.h>

#include <functional>

#include "tests/schedule/plans.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

template <class Entry>
using Lists = std::vector<std::vector<Entry>>;
template <class Entry>
using Judge = std::function<Status(const Lists<Entry>&)>;

// Every mutant must be refused, and for the harm it does, not for its cost. `mutate` may break the
// entry at `index` of list `at`, or leave all as it is, which counts for nothing.
template <class Entry, class Mutate>
int refuse_all(const Plan& plan, const char* name, const Lists<Entry>& valid,
               const Judge<Entry>& judge, Mutate mutate) {
  int mutants = 0;
  for (size_t at = 0; at < valid.size(); ++at)
    for (size_t index = 0; index < valid[at].size(); ++index) {
      Lists<Entry> mutant = valid;
      mutate(mutant, at, index);
      if (mutant == valid) continue;
      ++mutants;
      const Status status = judge(mutant);
      EXPECT_FALSE(status.ok() || status.message().starts_with("cost"))
          << status.message() << ": " << name << " of entry " << index << " of list " << at
          << " of " << describe(plan);
    }
  return mutants;
}

template <class Entry>
void drop(Lists<Entry>& lists, size_t at, size_t index) {
  lists[at].erase(lists[at].begin() + static_cast<long>(index));
}

template <class Entry>
void duplicate(Lists<Entry>& lists, size_t at, size_t index) {
  lists[at].insert(lists[at].begin() + static_cast<long>(index), Entry(lists[at][index]));
}

bool sends(const Step& step) {
  return step.kind == StepKind::send || step.kind == StepKind::notify;
}
bool is_empty_message(const Step& step) {
  return step.kind == StepKind::notify || step.kind == StepKind::await;
}

// Where the other end of a message is: the list of the peer and the index in it.
size_t other_end(const Schedule& schedule, int host, size_t index) {
  const Step& step = schedule[host][index];
  const auto count =
      std::count_if(schedule[host].begin(), schedule[host].begin() + static_cast<long>(index),
                    [&](const Step& s) { return s.peer == step.peer && sends(s) == sends(step); });
  auto left = count;
  const auto& peers = schedule[step.peer];
  for (size_t i = 0; i < peers.size(); ++i)
    if (peers[i].peer == host && sends(peers[i]) != sends(step) && left-- == 0) return i;
  ADD_FAILURE() << "a message without another end";
  return 0;
}

void drop_message(Schedule& schedule, size_t at, size_t index) {
  const Step step = schedule[at][index];
  if (!sends(step)) return;
  drop(schedule, step.peer, other_end(schedule, static_cast<int>(at), index));
  drop(schedule, at, index);
}

// Both ends agree on the wrong chunk.
void rechunk_message(Schedule& schedule, size_t at, size_t index, int chunks) {
  const Step step = schedule[at][index];
  if (step.kind != StepKind::send) return;
  const size_t end = other_end(schedule, static_cast<int>(at), index);
  schedule[at][index].chunk = schedule[step.peer][end].chunk = (step.chunk + 1) % chunks;
}

// A contribution folded twice, at both ends.
void double_message(Schedule& schedule, size_t at, size_t index) {
  const Step step = schedule[at][index];
  if (step.kind != StepKind::send) return;
  const size_t end = other_end(schedule, static_cast<int>(at), index);
  if (schedule[step.peer][end].kind != StepKind::recv_reduce) return;
  duplicate(schedule, step.peer, end);
  duplicate(schedule, at, index);
}

void retarget(Schedule& schedule, size_t at, size_t index) {
  Step& step = schedule[at][index];
  const int n = static_cast<int>(schedule.size());
  if (step.kind == StepKind::finish) return;
  do {
    step.peer = (step.peer + 1) % n;
  } while (step.peer == static_cast<int>(at));
}

void rechunk(Schedule& schedule, size_t at, size_t index, int chunks) {
  Step& step = schedule[at][index];
  if (!is_empty_message(step)) step.chunk = (step.chunk + 1) % chunks;
}

void swap_kind(Schedule& schedule, size_t at, size_t index) {
  StepKind& kind = schedule[at][index].kind;
  if (kind == StepKind::recv)
    kind = StepKind::recv_reduce;
  else if (kind == StepKind::recv_reduce)
    kind = StepKind::recv;
}

void turn_round(Schedule& schedule, size_t at, size_t index) {
  Step& step = schedule[at][index];
  if (step.kind == StepKind::finish) return;
  if (is_empty_message(step))
    step.kind = sends(step) ? StepKind::await : StepKind::notify;
  else
    step.kind = sends(step) ? StepKind::recv : StepKind::send;
}

// A message with data in the stead of an empty one, or the other way round, at one end.
void swap_content(Schedule& schedule, size_t at, size_t index) {
  StepKind& kind = schedule[at][index].kind;
  if (kind == StepKind::notify)
    kind = StepKind::send;
  else if (kind == StepKind::await)
    kind = StepKind::recv;
  else if (kind == StepKind::send)
    kind = StepKind::notify;
  else if (kind != StepKind::finish)
    kind = StepKind::await;
}

// Only where the order matters: the same chunk in different ways, or two messages of one link. The
// order in which a host finishes and says so does not, nor that of an empty message and one of
// several chunks, as a later chunk tells as much.
void swap_with_next(Schedule& schedule, size_t at, size_t index, int chunks) {
  if (index + 1 == schedule[at].size()) return;
  Step &a = schedule[at][index], &b = schedule[at][index + 1];
  const bool says_so = a.kind == StepKind::finish && b.kind == StepKind::notify;
  const bool tells = chunks > 1 && is_empty_message(a) != is_empty_message(b);
  const bool one_chunk = a.chunk == b.chunk && a.kind != b.kind && !says_so && !tells;
  const bool one_link = a.chunk != b.chunk && a.kind == b.kind && a.peer == b.peer && a.peer >= 0;
  if (one_chunk || one_link) std::swap(a, b);
}

void finish_elsewhere(Schedule& schedule, size_t at, size_t index) {
  const Step step = schedule[at][index];
  if (step.kind != StepKind::finish) return;
  drop(schedule, at, index);
  schedule[(at + 1) % schedule.size()].push_back(step);
}

// At the end of the rank's steps; where nothing of the chunk follows that is the same place.
void finish_last(Schedule& schedule, size_t at, size_t index) {
  auto& steps = schedule[at];
  const Step step = steps[index];
  const bool is_used = std::any_of(
      steps.begin() + static_cast<long>(index) + 1, steps.end(),
      [&](const Step& later) { return later.chunk == step.chunk && !is_empty_message(later); });
  if (step.kind != StepKind::finish || !is_used) return;
  drop(schedule, at, index);
  steps.push_back(step);
}

int refuse_mutants(const Plan& plan) {
  const Schedule valid = schedule_of(plan);
  const Judge<Step> judge = [&](const Schedule& mutant) { return check(plan, mutant); };
  EXPECT_TRUE(judge(valid).ok()) << describe(plan);
  const int chunks = chunk_count(plan);
  const auto refuse = [&](const char* name, auto mutate) {
    return refuse_all<Step>(plan, name, valid, judge, mutate);
  };
  const auto with_chunks = [&](auto mutate) {
    return [mutate, chunks](Schedule& s, size_t at, size_t i) { mutate(s, at, i, chunks); };
  };
  return refuse("drop", drop<Step>) + refuse("duplicate", duplicate<Step>) +
         refuse("drop_message", drop_message) + refuse("double_message", double_message) +
         refuse("rechunk", with_chunks(rechunk)) +
         refuse("rechunk_message", with_chunks(rechunk_message)) + refuse("retarget", retarget) +
         refuse("swap_kind", swap_kind) + refuse("swap_content", swap_content) +
         refuse("turn_round", turn_round) + refuse("swap_with_next", with_chunks(swap_with_next)) +
         refuse("finish_elsewhere", finish_elsewhere) + refuse("finish_last", finish_last);
}

std::vector<Plan> plans_to_break() {
  std::vector<Plan> plans;
  for (const auto& sizes : std::vector<std::vector<int>>{{1, 1},
                                                         {1, 1, 1},
                                                         {1, 1, 1, 1},
                                                         {1, 1, 1, 1, 1},
                                                         {1, 1, 1, 1, 1, 1},
                                                         {1, 1, 1, 1, 1, 1, 1},
                                                         {1, 1, 1, 1, 1, 1, 1, 1},
                                                         {3, 1},
                                                         {1, 2},
                                                         {2, 1, 2},
                                                         {4, 3},
                                                         {3, 2, 3, 2},
                                                         {2, 2, 2, 2, 2}})
    for (const Strategy& strategy : {kCentral, tree(1), tree(2), tree(3), kRing})
      for (Plan& plan : every_plan(hosts_of(sizes), strategy)) plans.push_back(std::move(plan));
  return plans;
}

TEST(Mutation, EveryBrokenScheduleIsRefused) {
  int mutants = 0;
  for (const Plan& plan : plans_to_break()) mutants += refuse_mutants(plan);
  RecordProperty("mutants", mutants);
  EXPECT_GE(mutants, 100000);
}

bool is_own(const Step& step) {
  return step.kind == StepKind::take || step.kind == StepKind::add || step.kind == StepKind::pack;
}

// As refuse_mutants(), for what is done in the order of the ranks only.
int refuse_mutants_of_order(const Plan& plan) {
  const Schedule valid = schedule_of(plan);
  const Judge<Step> judge = [&](const Schedule& mutant) { return check(plan, mutant); };
  EXPECT_TRUE(judge(valid).ok()) << describe(plan);
  const auto refuse = [&](const char* name, auto change) {
    return refuse_all<Step>(plan, name, valid, judge, [&](Schedule& s, size_t at, size_t i) {
      if (is_own(s[at][i])) change(s[at], i);
    });
  };
  return refuse("drop", [](auto& steps, size_t i) { steps.erase(steps.begin() + i); }) +
         refuse("other ranks", [](auto& steps, size_t i) { ++steps[i].first; }) +
         refuse("fewer ranks", [](auto& steps, size_t i) { --steps[i].ranks; }) +
         refuse("add twice",
                [](auto& steps, size_t i) {
                  if (steps[i].kind == StepKind::add)
                    steps.insert(steps.begin() + i, Step(steps[i]));
                }) +
         refuse("take for add",
                [](auto& steps, size_t i) {
                  if (steps[i].kind == StepKind::add) steps[i].kind = StepKind::take;
                }) +
         refuse("later",
                [](auto& steps, size_t i) {
                  if (i + 1 < steps.size() && steps[i + 1].kind == StepKind::recv_reduce)
                    std::swap(steps[i], steps[i + 1]);
                }) +
         refuse("sooner", [](auto& steps, size_t i) {
           if (i != 0 && steps[i - 1].kind == StepKind::recv_reduce)
             std::swap(steps[i], steps[i - 1]);
         });
}

// A contribution that is taken by itself may be taken twice.
void duplicate_but_own(Schedule& schedule, size_t at, size_t index) {
  if (!is_own(schedule[at][index])) duplicate(schedule, at, index);
}

int refuse_mutants_of_movement(const Plan& plan) {
  const Schedule valid = schedule_of(plan);
  const Judge<Step> judge = [&](const Schedule& mutant) { return check(plan, mutant); };
  const auto refuse = [&](const char* name, auto mutate) {
    return refuse_all<Step>(plan, name, valid, judge, mutate);
  };
  return refuse("drop", drop<Step>) + refuse("duplicate", duplicate_but_own) +
         refuse("drop_message", drop_message) + refuse("double_message", double_message) +
         refuse("swap_content",
                [](Schedule& schedule, size_t at, size_t index) {
                  if (!is_own(schedule[at][index])) swap_content(schedule, at, index);
                }) +
         refuse("finish_elsewhere", finish_elsewhere) + refuse("finish_last", finish_last);
}

TEST(Mutation, AnotherMovementOfReproducibleValuesIsRefused) {
  int mutants = 0;
  for (const Hosts& hosts : {lone_hosts(2), lone_hosts(3), lone_hosts(6), hosts_of({2, 2}),
                             hosts_of({3, 1, 2}), Hosts{{0, 2}, {1, 3}}})
    for (const Strategy& strategy : {kCentral, tree(2), kRing})
      for (const Plan& plan : every_reproducible_plan(hosts, strategy)) {
        // What goes to the root of a chain's reduce tells as much as the empty message after it.
        if (plan.collective == Collective::reduce &&
            (strategy == tree(2) || !(plan.raw || has_lone_ranks(hosts))))
          continue;
        mutants += refuse_mutants_of_movement(plan);
      }
  EXPECT_GE(mutants, 1000);
}

TEST(Mutation, AnotherOrderThanThatOfTheRanksIsRefused) {
  const std::vector<Hosts> layouts = {lone_hosts(2),
                                      lone_hosts(3),
                                      lone_hosts(5),
                                      hosts_of({2, 2}),
                                      hosts_of({3, 1, 2}),
                                      {{0, 2}, {1, 3}},
                                      {{1, 4, 6}, {0, 7}, {2, 3, 5}}};
  int mutants = 0;
  for (const Hosts& hosts : layouts)
    for (const Strategy& strategy : {kCentral, tree(2), kRing})
      for (const Plan& plan : every_reproducible_plan(hosts, strategy))
        mutants += refuse_mutants_of_order(plan);
  EXPECT_GE(mutants, 1000);
}

// A sum that is right in another order, by hand: the root folds its own, then the others'.
TEST(Mutation, AHeapsOrderIsNoReproducibleOne) {
  Plan plan = plan_of(Collective::all_reduce, {kCentral, tree(1)}, lone_hosts(3));
  plan.reproducible = true;
  const Step own{StepKind::take, -1, 0, 0, 1};
  const Schedule right_to_left = {{own, reduce(1), finish(), send(1)},
                                  {own, reduce(2), send(0), recv(0), send(2)},
                                  {own, send(1), recv(1)}};
  EXPECT_THAT(check(plan, right_to_left).message(),
              HasSubstr("it is not combined in the order of the ranks"));
}

void expect_fault(const Plan& plan, const Schedule& schedule, const char* fault) {
  const Status status = check(plan, schedule);
  EXPECT_EQ(status.code(), Code::internal) << fault;
  EXPECT_THAT(status.message(), HasSubstr(fault));
}

// A step about so many of the host's ranks, or of contributions side by side.
Step of_ranks(Step step, int ranks, int first = 0) {
  step.ranks = ranks;
  step.first = first;
  return step;
}

// One round between a host of ranks 0, 1 and 3 and one of rank 2, by hand: all of it is needed, and
// in this order, on each host.
TEST(Mutation, ARawAllReduceCombinesEveryContributionByRank) {
  Plan plan = plan_of(Collective::all_reduce, {kCentral, kCentral}, {{0, 1, 3}, {2}});
  plan.reproducible = plan.raw = true;
  const Step pack{StepKind::pack, -1, 0}, take{StepKind::take, -1, 0}, add{StepKind::add, -1, 0};
  const Step pair = of_ranks(send(1), 2), single = of_ranks(send(1), 1);
  const std::vector<Step> packs = {of_ranks(pack, 2), pair, of_ranks(pack, 1, 2), single};
  const auto after = [](std::vector<Step> steps, std::initializer_list<Step> more) {
    steps.insert(steps.end(), more);
    return steps;
  };
  const std::vector<Step> most =
      after(packs, {of_ranks(take, 2), of_ranks(reduce(1), 1), of_ranks(add, 1, 2), finish()});
  const std::vector<Step> sent = {of_ranks(pack, 1), of_ranks(send(0), 1)};
  const std::vector<Step> one =
      after(sent, {of_ranks(recv(0), 2), of_ranks(add, 1), of_ranks(reduce(0), 1), finish()});
  EXPECT_EQ(schedule_of(plan), (Schedule{most, one}));
  const char* const other_order = "it is not combined in the order of the ranks";
  expect_fault(plan, {after(packs, {of_ranks(take, 3), of_ranks(reduce(1), 1), finish()}), one},
               other_order);
  expect_fault(plan,
               {most, after(sent, {of_ranks(recv(0), 2), of_ranks(reduce(0), 1), of_ranks(add, 1),
                                   finish()})},
               other_order);
  const std::vector<Step> three_of_four = after(sent, {of_ranks(recv(0), 2), of_ranks(add, 1)});
  expect_fault(plan, {most, after(three_of_four, {finish()})}, "finished before it is complete");
  expect_fault(plan, {most, after(one, {finish()})}, "host 1, chunk 0: it is finished twice");
  expect_fault(plan, {{of_ranks(pack, 2), single}, one}, "another number of contributions is sent");
  expect_fault(plan, {most, after(sent, {recv(0)})}, "another number of contributions comes");
  expect_fault(plan, {{of_ranks(pack, 2), finish()}, one}, "finished before it is complete");
  expect_fault(plan, {{of_ranks(pack, 4), pair}, one}, "no such ranks");
  expect_fault(plan, {after(most, {send(1)}), after(one, {recv(0)})}, "the complete value leaves");
  plan.raw = false;
  expect_fault(plan, {most, one}, "only a raw plan packs");
}

// Without a copy, a host's value would be overwritten while another takes it.
TEST(Mutation, OnlyWhatIsPackedNeedsNoProofThatItWasTaken) {
  Plan plan = plan_of(Collective::all_reduce, {kCentral, kCentral}, lone_hosts(2));
  plan.reproducible = plan.raw = true;
  const Step take{StepKind::take, -1, 0, 0, 1}, add{StepKind::add, -1, 0, 0, 1};
  expect_fault(
      plan, {{take, send(1), take, reduce(1), finish()}, {take, send(0), recv(0), add, finish()}},
      "it is overwritten while its send to host");
}

// What reduce and broadcast say without data is there for agreement alone, and all of it is needed.
TEST(Mutation, NoEmptyMessageCanBeSpared) {
  for (const Plan& plan : plans_to_break()) {
    if (!has_root(plan.collective)) continue;
    const Schedule valid = schedule_of(plan);
    for (size_t at = 0; at < valid.size(); ++at)
      for (size_t index = 0; index < valid[at].size(); ++index) {
        if (valid[at][index].kind != StepKind::notify) continue;
        Schedule mutant = valid;
        drop_message(mutant, at, index);
        EXPECT_THAT(check(plan, mutant).message(),
                    ::testing::AnyOf(HasSubstr("is through before host"), HasSubstr("is ready")))
            << describe(plan);
      }
  }
}

Plan three(Collective collective, Strategy strategy = kCentral) {
  return plan_of(collective, {kCentral, strategy}, lone_hosts(3));
}

TEST(Faults, OfMessages) {
  const Plan plan = three(Collective::broadcast);
  const std::vector<Step> root = {await(1), await(2), send(1), send(2)};
  const std::vector<Step> leaf = {notify(0), recv(0)};
  EXPECT_TRUE(check(plan, {root, leaf, leaf}).ok());
  expect_fault(plan, {{await(1), await(2), send(1)}, leaf, leaf},
               "deadlock: host 2 waits for ever");
  expect_fault(plan, {{await(1), await(2), send(1), send(2), send(1)}, leaf, leaf},
               "a message from host 0 to host 1 is never taken");
  expect_fault(plan, {root, leaf, {notify(0), recv(0), send(1)}}, "never taken");
  expect_fault(plan, {{send(0)}, {}, {}}, "host 0: no such peer");
  expect_fault(plan, {{send(3)}, {}, {}}, "host 0: no such peer");
  expect_fault(plan, {{notify(3)}, {}, {}}, "host 0: no such peer");
  expect_fault(plan, {{send(1, 1)}, {}, {}}, "host 0: no such chunk");
  expect_fault(plan, {{}, {send(2)}, {}}, "a value is sent where there is none");
  expect_fault(plan, {{}, {}}, "one list of steps a host");
  expect_fault(three(Collective::all_gather), {{send(1, 0)}, {recv(0, 1)}, {}},
               "host 0 sent chunk 0 instead");
  expect_fault(plan, {{await(1), send(1)}, {notify(0), await(0)}, {}},
               "it comes where an empty message is awaited");
  expect_fault(plan, {{notify(1)}, {recv(0)}, {}}, "an empty message comes in its stead");
}

// Data has come where it should, and nothing else has.
TEST(Faults, OfAgreement) {
  expect_fault(three(Collective::broadcast), {{send(1), send(2)}, {recv(0)}, {recv(0)}},
               "host 0, chunk 0: it is sent before host 1 is ready");
  expect_fault(three(Collective::broadcast),
               {{await(1), send(1), await(2), send(2)}, {notify(0), recv(0)}, {notify(0), recv(0)}},
               "host 1 is through before host 2 has started");
  expect_fault(three(Collective::reduce), {{reduce(1), reduce(2), finish()}, {send(0)}, {send(0)}},
               "host 1 is through before host 0 has started");
  // Host 1 is notified too early: before host 2's value has come.
  expect_fault(three(Collective::reduce),
               {{reduce(1), notify(1), reduce(2), finish(), notify(2)},
                {send(0), await(0)},
                {send(0), await(0)}},
               "host 1 is through before host 2 has started");
}

TEST(Faults, OfValues) {
  const Plan plan = three(Collective::all_reduce);
  const std::vector<Step> root = {reduce(1), reduce(2), finish(), send(1), send(2)};
  const std::vector<Step> leaf = {send(0), recv(0)};
  EXPECT_TRUE(check(plan, {root, leaf, leaf}).ok());
  expect_fault(plan, {{reduce(1), finish(), send(1)}, leaf, {}}, "finished before it is complete");
  expect_fault(plan, {{reduce(1), reduce(1)}, {send(0), send(0)}, {}}, "a contribution is doubled");
  expect_fault(plan, {{reduce(1), reduce(2), send(1)}, leaf, {send(0)}}, "leaves unfinished");
  expect_fault(plan, {{reduce(1), reduce(2)}, {send(0)}, {send(0)}}, "the result is unfinished");
  expect_fault(plan, {{reduce(1), reduce(2), finish(), send(1), send(2), finish()}, leaf, leaf},
               "it is finished twice");
  expect_fault(plan, {{reduce(1), reduce(2), finish(), send(1)}, leaf, {send(0)}},
               "host 2, chunk 0: a contribution is lost");
  expect_fault(three(Collective::broadcast), {{await(1), send(1)}, {notify(0), reduce(0)}, {}},
               "nothing is there to reduce into");
  expect_fault(three(Collective::broadcast), {{finish()}, {}, {}}, "nothing to finish");
}

// Host 1's value is on its way to host 2 when host 0's comes; no word of host 2 is in that.
TEST(Faults, OfMemoryOverwrittenWhileItIsSent) {
  const Plan plan = three(Collective::all_reduce);
  expect_fault(
      plan, {{send(1)}, {send(2), reduce(0)}, {reduce(1)}},
      "host 1, chunk 0: it is overwritten while its send to host 2 may still be under way");
  expect_fault(plan,
               {{send(1), send(2), reduce(1), reduce(2)},
                {send(0), send(2), reduce(0), reduce(2)},
                {send(0), send(1), reduce(0), reduce(1)}},
               "may still be under way");
}

// Host 1 hears of chunk 1 that host 2 went on, which says nothing of chunk 0 if chunks run apart.
TEST(Faults, OfProofsThatLeanOnAnotherChunk) {
  const Plan plan = three(Collective::reduce_scatter);
  const Schedule leaning = {
      {send(1, 0)}, {send(2, 0), reduce(2, 1), reduce(0, 0)}, {reduce(1, 0), send(1, 1)}};
  expect_fault(plan, leaning,
               "host 1, chunk 0: it is overwritten while its send to host 2 may still be");
}

TEST(Faults, OfCosts) {
  const Plan chain = three(Collective::reduce, tree(1));
  const Schedule star = {{reduce(1), reduce(2), finish(), notify(1), notify(2)},
                         {send(0), await(0)},
                         {send(0), await(0)}};
  expect_fault(chain, star, "cost: 2 rounds, where cost_of() states 4");
  const Schedule line = {{reduce(1), finish(), notify(1)},
                         {reduce(2), send(0), await(0), notify(2)},
                         {send(1), await(1)}};
  EXPECT_TRUE(check(chain, line).ok());
  expect_fault(three(Collective::reduce), line, "cost: 4 rounds, where cost_of() states 2");
  const Schedule talkative = {{send(1), send(1), recv(1), reduce(2), finish(), notify(2)},
                              {recv(0), recv(0), send(0)},
                              {send(0), await(0)}};
  EXPECT_FALSE(check(three(Collective::reduce), talkative).ok());
}

}  // namespace
}  // namespace tutti
