// What is read of the reports of /api/status, and how figures are written. Judges nothing: grades,
// verdicts and sentences are those of the diagnosis.

const kEndedShownMs = 3600e3;
const kEndedTogetherMs = 60e3;  // Between the ends of one job on its hosts.

// ---- Figures ----

function scaled(value, base, units) {
  let unit = 0;
  while (value >= base && unit + 1 < units.length) {
    value /= base;
    ++unit;
  }
  const digits = value >= 100 || unit === 0 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`.trim();
}
const bytes = value => scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
const rate = value => scaled(value, 1000, ['B/s', 'kB/s', 'MB/s', 'GB/s', 'TB/s']);
const count = value => scaled(value, 1000, ['', 'k', 'M', 'G']);
function duration(ms) {
  const s = ms / 1000;
  return s < 120 ? `${Math.round(s)} s` :
      s < 7200 ? `${Math.round(s / 60)} min` :
                 `${Math.round(s / 3600)} h`;
}
function micros(us) {
  if (us >= 120e6) return duration(us / 1000);
  return us >= 1e6 ? `${(us / 1e6).toFixed(1)} s` :
      us >= 1000 ? `${(us / 1000).toFixed(us >= 10000 ? 0 : 1)} ms` :
                   `${Math.round(us)} µs`;
}
// For lists that are too long for the arguments of Math.max().
const most_of = (values, least) =>
    values.reduce((most, value) => value > most ? value : most, least);
const least_of = values => -most_of(values.map(value => -value), -Infinity);
const plural = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;
const range = (from, to, text) => from === to ? text(from) : `${text(from)}–${text(to)}`;

// "0-254, 256": numbers that ascend.
function ranges(numbers) {
  const runs = [];
  for (const number of numbers)
    if (runs.length && runs.at(-1)[1] === number - 1)
      runs.at(-1)[1] = number;
    else
      runs.push([number, number]);
  return runs.map(([from, to]) => from === to ? `${from}` : `${from}-${to}`).join(', ');
}

// ---- What is read of the reports ----

const kGrades = ['FAIL', 'WARN', 'OK'];
const by_grade = (a, b) => kGrades.indexOf(a) - kGrades.indexOf(b);

// Users, and subjects of tokens, may have jobs of one name.
const key_of = ({job, uid, subject}) => JSON.stringify([uid, subject || '', job]);

function job_of(found) {
  const {job, uid, subject} = found;
  return {key: key_of(found), name: job, uid, subject, found, workers: []};
}

// A job has a worker on each of its nodes; what they say is put together with what is found of it.
// The worst comes first.
function jobs_of(agents, traces, diagnosis) {
  const jobs = new Map(diagnosis.jobs.map(found => [key_of(found), job_of(found)]));
  for (const agent of agents)
    for (const worker of agent.workers)
      jobs.get(key_of(worker))?.workers.push({...worker, host: agent.host});
  for (const job of jobs.values()) {
    add_figures(job);
    const own = traces.filter(trace => key_of(trace) === job.key);
    job.calls = own.flatMap(trace => trace.calls).sort((a, b) => a.begun_us - b.begun_us);
  }
  return [...jobs.values()].sort(
      (a, b) => by_grade(a.found.grade, b.found.grade) || (a.name < b.name ? -1 : 1));
}

// What its workers say of it together.
function add_figures(job) {
  const sum = name => job.workers.reduce((total, worker) => total + worker[name], 0);
  const most = name => most_of(job.workers.map(worker => worker[name]), 0);
  Object.assign(job, {
    ranks: ranks_of(job),
    hosts: job.workers.map(worker => worker.host),
    strategy: job.workers[0]?.strategy,
    world_size: most('world_size'),
    epoch: most('epoch'),
    operations: sum('operations'),
    failures: sum('failures'),
    bytes: sum('bytes'),
    memory: sum('memory_bytes'),
    sent: sum('sent_bytes')
  });
}

// Each rank once, although one that joins again may be in two reports: the diagnosis goes by the
// last.
function ranks_of(job) {
  const reports = new Map(job.workers.flatMap(
      worker => worker.ranks.map(rank => [rank.rank, {...rank, host: worker.host}])));
  return job.found.ranks.map(
      found => ({operations: 0, host: '', ...reports.get(found.rank), rank: found.rank, found}));
}

// Figures per second, from two reports. Operations are counted by each rank: those of the job are
// those of one.
const earlier = new Map();
function per_second(job, now) {
  const last = earlier.get(job.key) || {at: now, operations: job.operations, bytes: job.bytes};
  earlier.set(job.key, {at: now, operations: job.operations, bytes: job.bytes});
  const seconds = Math.max((now - last.at) / 1000, .001);
  const joined =
      job.workers.flatMap(worker => worker.ranks).filter(rank => rank.epoch !== 0).length;
  const of = name => Math.max(job[name] - last[name], 0) / seconds;
  return {operations: of('operations') / Math.max(joined, 1), bytes: of('bytes')};
}

function troubles_of(agent) {
  const ways = [['coordinator', agent.coordinator_state], ['etcd', agent.etcd_state]];
  return ways.filter(([, state]) => state && state !== 'connected');
}

function nodes_of(agents, diagnosis) {
  const node_of = (agent, i) => {
    const name = agent.host || agent.address;
    return {...agent, name, grade: diagnosis.nodes[i], troubles: troubles_of(agent)};
  };
  const nodes = agents.map(node_of);
  return nodes.sort((a, b) => by_grade(a.grade, b.grade) || b.troubles.length - a.troubles.length);
}

// What is wrong, the worst first. `word` changes when it is something else that is wrong.
function findings_of(jobs, nodes, alarms) {
  const findings = alarms.map(({subject, finding}) => ({subject, text: finding, grade: 'FAIL'}));
  for (const {name, found} of jobs)
    if (found.grade === 'WARN')
      findings.push(
          {subject: `Job ${name}`, text: found.sentence, grade: 'WARN', word: found.verdict});
  for (const {name, grade, state, troubles} of nodes) {
    if (grade === 'WARN' && !alarms.some(({subject}) => subject === `Node ${name}`))
      findings.push({subject: `Node ${name}`, text: `is ${state}`, grade});
    for (const [what, its_state] of troubles)
      findings.push({subject: `Node ${name}, ${what}`, text: its_state, grade: 'WARN'});
  }
  return findings;
}

// The jobs that have ended in the last hour, the newest first. Their hosts report each its own end:
// a failure tells more.
function ended_of(agents, now_ms) {
  const reports = agents.flatMap(
      agent => (agent.ended || []).map(one => ({...one, host: agent.host, key: key_of(one.last)})));
  const jobs = [];
  for (const report of reports.sort((a, b) => a.time_ms - b.time_ms)) {
    if (now_ms - report.time_ms > kEndedShownMs) continue;
    const known = jobs.find(
        job => job.key === report.key && report.time_ms - job.time_ms < kEndedTogetherMs &&
            !job.hosts.includes(report.host));
    if (!known)
      jobs.push({...report, hosts: [report.host]});
    else
      Object.assign(
          known, is_failure(report) && !is_failure(known) ? report : {},
          {hosts: [...known.hosts, report.host]});
  }
  return jobs.reverse();
}
const is_failure = ({outcome}) => outcome === 'failed';
