// What is shown of the reports, and the questions for them.

const kPollMs = 1000;
const kEvidenceShown = 8;
const kFindingsShown = 8;
const kNodesShown = 24;
const kRanksUnfolded = 16;  // Jobs of more ranks have their ranks in groups.
const kRowsShown = 256;
const kLanesShown = 12;
const kLaneWidth = 1000;
const kRecentUs = 3e6;  // A timeline that ends so long ago ends now.
const kCollectives = [
  'all_reduce', 'reduce', 'broadcast', 'all_gather', 'reduce_scatter', 'barrier', 'gather',
  'scatter', 'all_to_all'
];

// ---- Nodes and findings ----

const pill = (text, kind = '', key = 'pill') => el('span', {class: `pill ${kind}`, key}, text);
const space = () => el('span', {class: 'grow'});
const kKinds = {
  OK: 'good',
  WARN: 'warn',
  FAIL: 'bad'
};
const word_of = state => state.split(':')[0];
const figure = (value, label, kind = '') =>
    el('div', {class: 'figure'}, el('b', {class: kind}, value), el('span', {}, label));

// An alarm is read out when it appears, and not again for each second of its age.
function finding_box({subject, text, grade}) {
  const role = grade === 'FAIL' ? 'alert' : undefined;
  return el(
      'div', {class: `finding ${kKinds[grade]}`, key: subject + grade, role}, el('b', {}, subject),
      ' ', el('span', {'aria-live': 'off'}, text));
}

function facts_of(agent) {
  const facts = [['control plane', agent.address]];
  for (const [what, state] of agent.troubles) facts.push([what, state, 'warn']);
  if (agent.lost) facts.push(['lost for', duration(agent.lost_ms), 'bad']);
  if (agent.version) {
    if (agent.workers.length) facts.push(['jobs', agent.workers.length]);
    facts.push(['up', duration(agent.uptime_ms)]);
    if (agent.descriptors_max)
      facts.push(['descriptors', `${agent.descriptors} of ${agent.descriptors_max}`]);
    const refused = (agent.refused || []).reduce((total, one) => total + one.count, 0);
    if (refused) facts.push(['refused callers', count(refused), 'warn']);
    facts.push(['version', agent.version]);
  }
  for (const gpu of agent.gpus || [])
    facts.push([
      `GPU ${gpu.index}`,
      gpu.failed ? gpu.state :
                   `${gpu.name}, ${bytes(gpu.used_bytes)} of ${bytes(gpu.memory_bytes)}`,
      gpu.failed ? 'bad' : ''
    ]);
  return facts;
}

function fact_row([name, value, kind]) {
  return [el('dt', {key: name}, name), el('dd', {key: name, class: kind}, value)];
}

function node_card(agent) {
  const kind = agent.troubles.length && agent.grade === 'OK' ? '' : kKinds[agent.grade];
  return el(
      'div', {class: 'card node', key: agent.name},
      el('div', {class: 'row'}, el('h3', {}, agent.name),
         agent.coordinator ? pill('coordinator') : '', space(),
         pill(word_of(agent.state), kind, 'state')),
      el('dl', {}, facts_of(agent).map(fact_row)));
}

// ---- Ranks and links ----

// What is found of a rank, and what it does, in few words.
function step_of({behind, waits, late}, healthy) {
  if (behind) return `${count(behind)} behind`;
  if (waits) return 'waits';
  if (late) return 'late';
  return healthy ? 'in step' : '';
}
const now_of = ({doing}) => doing || 'between operations';

// Ranks of which the same is found.
function groups_of({ranks, found}) {
  const groups = new Map();
  for (const rank of ranks) {
    const key = JSON.stringify(
        [step_of(rank.found, found.healthy), rank.found.waits ? rank.found.doing : '']);
    groups.has(key) ? groups.get(key).push(rank) : groups.set(key, [rank]);
  }
  return [...groups.values()];
}

// A word is a rank, a range of ranks, or a part of what is in the row.
function matches({rank, host, found}, words, healthy) {
  const text = `${host} ${step_of(found, healthy)} ${now_of(found)}`.toLowerCase();
  return !words.length || words.some(word => {
    const [, from, to = from] = word.match(/^(\d+)(?:-(\d+))?$/) || [];
    return from === undefined ? text.includes(word) : +from <= rank && rank <= +to;
  });
}

function shown_ranks(job) {
  const words =
      (choices.get(`filter ${job.key}`) || '').toLowerCase().split(/[\s,]+/).filter(word => word);
  if (job.ranks.length > kRanksUnfolded && !words.length && !choices.get(`each ${job.key}`))
    return groups_of(job);
  return job.ranks.filter(rank => matches(rank, words, job.found.healthy)).map(rank => [rank]);
}

function ranks_row(ranks, healthy) {
  const {found, host} = ranks[0];
  const step = step_of(found, healthy), now = now_of(found);
  const hosts = new Set(ranks.map(rank => rank.host));
  const operations = ranks.map(rank => rank.operations);
  const delays = ranks.map(rank => rank.found.late_us).filter(is_there);
  const cell = (kind, text) => el('td', {class: kind}, text);
  return el(
      'tr', {key: step + ranks[0].rank},
      el('th', {class: 'num', scope: 'row'}, ranges(ranks.map(rank => rank.rank))),
      cell('', hosts.size === 1 ? host : plural(hosts.size, 'node')),
      cell('num', range(least_of(operations), most_of(operations, 0), count)),
      cell(found.behind || found.waits || found.late ? 'warn' : 'soft', step),
      cell(`num ${found.late ? 'warn' : 'soft'}`, delays.length ? micros(most_of(delays, 0)) : '–'),
      cell(
          found.waits ? 'warn' : 'soft',
          ranks.every(rank => now_of(rank.found) === now) ? now : ''));
}

const note_row = (key, ranks, text, kind) =>
    el('tr', {key}, el('th', {class: 'num', scope: 'row'}, ranks),
       el('td', {class: kind, colspan: 5}, text));

function ranks_rows(job) {
  const {gone, missing, healthy} = job.found;
  const all = shown_ranks(job),
        rows = all.slice(0, kRowsShown).map(ranks => ranks_row(ranks, healthy));
  const note = (key, ranks, text, kind) => rows.push(note_row(key, ranks, text, kind));
  if (all.length > rows.length)
    note('rest', '', `${plural(all.length - rows.length, 'more row')}: filter for them`, 'soft');
  if (gone.length) note('gone', ranges(gone), 'gone', 'bad');
  if (missing) note('missing', '', `${plural(missing, 'rank')} not here`, 'warn');
  return rows;
}

// Jobs of many ranks can be searched.
function ranks_choices(job) {
  if (job.ranks.length <= kRanksUnfolded) return '';
  const filter = `filter ${job.key}`, each = `each ${job.key}`;
  const search = {type: 'search', placeholder: 'rank, node or state'};
  return el(
      'div', {class: 'choices', key: 'choices'},
      el('label', {}, 'Filter ',
         el('input', {...search, 'data-choice': filter, value: choices.get(filter)})),
      el('label', {},
         el('input',
            {type: 'checkbox', 'data-choice': each, checked: choices.get(each) ? '' : undefined}),
         ' each rank'));
}

// What is too wide for its card is scrolled, by the keyboard, too.
const scrolled = (label, contents) =>
    el('div', {class: 'scroll', role: 'group', tabindex: 0, 'aria-label': label}, contents);
const columns = heads =>
    el('thead', {},
       el('tr', {},
          heads.map(([name, kind, title]) => el('th', {class: kind, title, scope: 'col'}, name))));

const kRankColumns = [
  ['rank', 'num'], ['node'], ['operations', 'num'], ['state'],
  ['late', 'num', 'later than the middle one of the others, the median of the last operations'],
  ['now']
];
const ranks_table = job =>
    el('div', {key: 'ranks'}, ranks_choices(job),
       scrolled(
           `Ranks of ${job.name}`,
           el('table', {}, el('caption', {}, 'Ranks'), columns(kRankColumns),
              el('tbody', {}, ranks_rows(job)))));

function link_cell(path, fastest) {
  if (!path) return el('td', {class: 'soft'}, '–');
  return el(
      'td', {class: `heat${fastest ? Math.round(4 * path.bytes_per_s / fastest) : 0}`},
      path.bytes_per_s ? rate(path.bytes_per_s) : 'not measured',
      el('small', {}, path.message_us ? `${micros(path.message_us)} a message` : ''));
}

function links_table(title, job, paths) {
  const fastest = most_of([...paths.values()].map(path => path.bytes_per_s), 0);
  const cell = (from, to) => from === to ? el('td', {class: 'soft'}, '·') :
                                           link_cell(paths.get(`${from}\n${to}`), fastest);
  const row = from =>
      el('tr', {}, el('th', {scope: 'row'}, from), job.hosts.map(to => cell(from, to)));
  return el(
      'table', {class: 'matrix'}, el('caption', {}, title),
      el('thead', {},
         el('tr', {}, el('td'), job.hosts.map(host => el('th', {scope: 'col'}, host)))),
      el('tbody', {}, job.hosts.map(row)));
}

function links_matrix(job) {
  const paths = new Map();
  for (const worker of job.workers)
    for (const path of worker.paths || []) paths.set(`${path.from}\n${path.to}`, path);
  const title = 'Links, from row to column';
  const why_not =
      job.hosts.length > 1 ? 'Nothing is measured yet.' : 'All ranks share the memory of one node.';
  if (!paths.size)
    return el('div', {key: 'links'}, el('h4', {}, title), el('span', {class: 'soft'}, why_not));
  return el(
      'div', {key: 'links'}, scrolled(`Links of ${job.name}`, links_table(title, job, paths)),
      el('p', {class: 'soft'}, `${bytes(job.sent)} sent between nodes so far`));
}

// ---- The timeline ----

const hue = collective => `c${Math.max(0, kCollectives.indexOf(collective))}`;
const is_open = call => call.duration_us === undefined;
const has_failed = call => !is_open(call) && call.code !== 'OK';

// The time that a timeline shows: until now if an operation is under way.
function span_of(calls, now_us) {
  const begin = calls[0].begun_us;  // They are in this order.
  return {
    now_us,
    begin,
    end: most_of(
        calls.map(call => is_open(call) ? now_us : call.begun_us + call.duration_us), begin + 1000)
  };
}

function kind_of(call) {
  if (is_open(call)) return 'open';
  return has_failed(call) ? 'bad' : hue(call.collective);
}

function bar(call, {now_us, begin, end}) {
  const x = us => (us - begin) / (end - begin) * kLaneWidth;
  const from = x(call.begun_us), to = x(is_open(call) ? now_us : call.begun_us + call.duration_us);
  const state = is_open(call) ? `for ${micros(now_us - call.begun_us)} now` :
                                `${micros(call.duration_us)}, ${call.code}`;
  const title =
      `rank ${call.rank}: ${call.collective} #${call.number}, ${bytes(call.bytes)}: ${state}`;
  return el(
      'rect', {
        key: `${call.group} ${call.number}`,
        class: kind_of(call),
        x: from,
        y: 0,
        width: Math.max(to - from, 1.5),
        height: 1
      },
      el('title', {}, title));
}

function lane(rank, host, calls, span) {
  const box = {
    viewBox: `0 0 ${kLaneWidth} 1`,
    preserveAspectRatio: 'none',
    role: 'img',
    'aria-label': `the last operations of rank ${rank}`
  };
  return el(
      'div', {class: 'lane', key: rank},
      el('span', {title: host}, `rank ${rank}${host && ` · ${host}`}`),
      el('svg', box, calls.map(call => bar(call, span))));
}

function ticks({now_us, begin, end}) {
  const last = now_us - end > kRecentUs ? `${micros(now_us - end)} ago` : 'now';
  const before = [1, .75, .5, .25].map(part => `−${micros((end - begin) * part)}`);
  const all = [...before, last].map(text => el('span', {}, text));
  return el('div', {class: 'lane', key: 'ticks'}, el('span'), el('div', {class: 'ticks'}, all));
}

function legend(calls) {
  const mark = (kind, name) => el('span', {key: name}, el('i', {class: kind}), name);
  const used = kCollectives.filter(name => calls.some(call => call.collective === name));
  return el(
      'div', {class: 'legend'}, used.map(name => mark(hue(name), name)),
      calls.some(is_open) ? mark('wait', 'under way') : '',
      calls.some(has_failed) ? mark('fail', 'failed') : '');
}

// Where there are many ranks, those of which something is found, and the first of each group, are
// seen first.
function lanes_order(ranks, job) {
  const found = new Map(job.ranks.map(rank => [rank.rank, rank.found]));
  const first = new Set(groups_of(job).map(group => group[0].rank));
  function weight(rank) {
    if (found.get(rank)?.behind || found.get(rank)?.late) return 0;
    return first.has(rank) ? 1 : 2;
  }
  return [...ranks].sort((a, b) => weight(a) - weight(b) || a - b);
}

function timeline(job, now_us) {
  if (!job.calls.length) return '';
  const calls = new Map(), host = new Map(job.ranks.map(rank => [rank.rank, rank.host]));
  for (const call of job.calls)
    calls.has(call.rank) ? calls.get(call.rank).push(call) : calls.set(call.rank, [call]);
  const span = span_of(job.calls, now_us);
  const row = rank => lane(rank, host.get(rank) || '', calls.get(rank), span);
  const lanes = ranks => el('div', {}, [...ranks].sort((a, b) => a - b).map(row));
  return el(
      'div', {class: 'timeline', key: 'timeline'}, el('h4', {}, 'The last operations'),
      some_of(lanes_order(calls.keys(), job), kLanesShown, `lanes ${job.key}`, 'rank', lanes),
      ticks(span), legend(job.calls));
}

// ---- The whole ----

const sentence_of = ({healthy, grade, sentence, evidence}) => el(
    'div', {class: `sentence ${healthy ? 'soft' : kKinds[grade]}`, key: 'sentence'}, sentence,
    healthy ? '' : evidence.slice(0, kEvidenceShown).map(line => el('div', {class: 'soft'}, line)));

function job_head({name, uid, subject, epoch, strategy, ranks, hosts, world_size, found}) {
  const user = `user ${uid}${subject && ` (${subject})`}`;
  const about = [
    user, `epoch ${epoch}`, `${ranks.length} of ${plural(world_size, 'rank')}`,
    plural(hosts.length, 'node')
  ].join(' · ');
  return el(
      'div', {class: 'row'}, el('h3', {}, name),
      pill(found.verdict, kKinds[found.grade], 'verdict'), strategy ? pill(strategy) : '', space(),
      el('span', {class: 'soft', key: 'about'}, about));
}

const job_figures = job => el(
    'div', {class: 'figures', key: 'figures'},
    figure(`${count(job.speed.operations)}/s`, 'operations of each rank'),
    figure(rate(job.speed.bytes), 'of tensors'),
    figure(
        count(most_of(job.ranks.map(rank => rank.operations), 0)), 'operations of a rank so far'),
    figure(count(job.failures), 'failed', job.failures ? 'bad' : ''),
    figure(bytes(job.memory), 'in segments'));

const job_card = (job, now_us) =>
    el('div', {class: 'card job', key: job.key}, job_head(job), sentence_of(job.found),
       job_figures(job),
       el('div', {class: 'parts', key: 'parts'}, ranks_table(job), links_matrix(job)),
       timeline(job, now_us));

function ended_row({key, time_ms, outcome, hosts, sentence, worker_end, last}, now_ms) {
  return el(
      'tr', {key: `${time_ms} ${key}`}, el('th', {scope: 'row'}, last.job),
      el('td', {class: is_failure({outcome}) ? 'bad' : 'soft'}, outcome),
      el('td', {class: 'num'}, `${duration(now_ms - time_ms)} ago`), el('td', {}, hosts.join(', ')),
      el('td', {}, sentence, worker_end ? ` (a worker ${worker_end})` : ''));
}

const kEndedColumns = [['job'], ['outcome'], ['when', 'num'], ['nodes'], ['what was found']];
function ended_list(ended, now_ms) {
  if (!ended.length) return '';
  const failed = ended.filter(is_failure).length;
  const summary =
      `${plural(ended.length, 'job')} ended in the last hour${failed ? `, ${failed} failed` : ''}`;
  return folded(
      'ended', summary,
      () => el(
          'div', {class: 'card'},
          scrolled(
              'Ended jobs',
              el('table', {}, el('caption', {class: 'unseen'}, 'Jobs that ended in the last hour'),
                 columns(kEndedColumns),
                 el('tbody', {}, ended.map(one => ended_row(one, now_ms)))))));
}

const kHowToSeeJobs = 'Jobs and users are shown to administrators: sign in with a token that has ' +
    'role=admin in this node\'s token_file, as the password. Or set metrics_public = yes, and ' +
    'anyone who reaches this port sees them.';
const kHowToStart =
    'Start a program on the nodes for each rank of a job, with three variables in ' +
    'its environment; in it, tutti.join() needs no more. Ranks appear here as they join.';
const kExample = 'TUTTI_JOB=demo TUTTI_RANK=0 TUTTI_WORLD_SIZE=2 python3 train.py';

function empty(access, hidden) {
  if (access !== 'all') {
    const title = hidden ? `${plural(hidden, 'job')} on this node` : 'No jobs on this node';
    return el(
        'div', {class: 'card empty', key: 'no access'}, el('h2', {}, title),
        el('p', {}, kHowToSeeJobs));
  }
  return el(
      'div', {class: 'card empty', key: 'no jobs'}, el('h2', {}, 'No job is running'),
      el('p', {}, kHowToStart), el('code', {}, kExample));
}

// What is new is said once, to those who do not see it. Alarms say themselves.
const said = new Map();
function say_news(findings) {
  const now = new Map(findings.map(
      ({subject, text, grade, word}) => [`${subject} ${grade} ${word}`, {subject, text, grade}]));
  const news = [];
  for (const [key, {subject, text, grade}] of now)
    if (grade !== 'FAIL' && !said.has(key)) news.push(`${subject} ${text}`);
  for (const [key, {subject}] of said)
    if (!findings.some(finding => finding.subject === subject))
      news.push(`${subject}: nothing is found any more`);
  said.clear();
  for (const [key, finding] of now) said.set(key, finding);
  if (news.length) document.getElementById('news').textContent = news.join('. ');
}

let last = null;  // What was answered last, as it is drawn.
function take(answer, now) {
  const agents = answer.status.agents, jobs = jobs_of(agents, answer.traces, answer.diagnosis),
        nodes = nodes_of(agents, answer.diagnosis);
  for (const job of jobs) job.speed = per_second(job, now);
  for (const key of earlier.keys())
    if (!jobs.some(job => job.key === key)) earlier.delete(key);
  last = {
    ...answer,
    jobs,
    nodes,
    findings: findings_of(jobs, nodes, answer.diagnosis.alarms),
    ended: ended_of(agents, answer.now_us / 1000)
  };
}

function summary_of({access, nodes, jobs}) {
  if (access !== 'all') return `node ${nodes[0].name}`;
  const ranks = jobs.reduce((total, job) => total + job.ranks.length, 0);
  return [plural(nodes.length, 'node'), plural(jobs.length, 'job'), plural(ranks, 'rank')].join(
      ' · ');
}

function redraw() {
  const {access, hidden_jobs, jobs, nodes, findings, ended, now_us} = last;
  document.getElementById('summary').textContent = summary_of(last);
  document.getElementById('login').hidden = access === 'all';
  const boxes = some_of(
      findings, kFindingsShown, 'findings', 'finding',
      some => el('div', {}, some.map(finding_box)));
  const cards = some_of(
      nodes, kNodesShown, 'nodes', 'node',
      some => el('div', {class: 'nodes'}, some.map(node_card)));
  place(
      document.getElementById('shown'),
      el('div', {}, el('div', {key: 'findings'}, boxes),
         jobs.length ? [el('h2', {key: 'jobs'}, 'Jobs'), jobs.map(job => job_card(job, now_us))] :
                       empty(access, hidden_jobs),
         ended_list(ended, now_us / 1000),
         el('h2', {key: 'nodes'}, access === 'all' ? 'Nodes' : 'This node'),
         el('div', {key: 'nodes'}, cards))
          .children);
}

// The address may have a name and a token, which a browser shows only where it is asked.
function request() {
  const {username, password} = new URL(document.URL);
  const pair = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const headers = password ? {Authorization: `Basic ${btoa(pair)}`} : {};
  return fetch(new URL('/api/status', location.origin), {cache: 'no-store', headers});
}

async function poll() {
  const fresh = document.getElementById('fresh');
  try {
    const answer = await request();
    if (!answer.ok) throw new Error((await answer.text()).trim());
    take(await answer.json(), Date.now());
    redraw();
    say_news(last.findings);
    fresh.textContent = `as of ${new Date().toLocaleTimeString()}`;
    fresh.className = 'soft';
  } catch (error) {
    fresh.textContent = `not updated: ${error.message}`;
    fresh.className = 'bad';
  }
  setTimeout(poll, kPollMs);
}
poll();
