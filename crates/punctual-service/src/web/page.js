'use strict';
// Asks for data.json each second and shows it. Every text of others goes into the page as text, never as
// markup. What is there is changed in place, so that focus, selection and what was opened stay.
const PALETTE = 8;
const WINDOW_S = 300;
const POLL_MS = 1000;
const ANSWER_MS = 3000;
const SHOWN = { reasons: 12, causes: 6, uses: 6, steps: 12 };

const at = (id) => document.getElementById(id);
const state = {
  moments: [], names: new Map(), colours: new Map(), last: 0, started_us: 0, good_at: null,
  opened_at: new Date(), isPaused: false, data: null,
};

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'class') node.className = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Changes the children of a node to one for each item; those with the same key stay what they are.
function keyed(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    if (child) known.delete(name);
    else {
      child = create(item);
      child.dataset.key = name;
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  known.forEach((child) => child.remove());
}

// A stranger's text: without the marks that turn the direction of what follows, and cut off.
function name(text) {
  const clean = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\ufffd');
  return clean.length > 200 ? `${clean.slice(0, 200)}...` : clean;
}

function time(ns) {
  if (ns < 1000) return `${ns}\u00a0ns`;
  const [unit, size] = ns < 1e6 ? ['us', 1e3] : ns < 1e9 ? ['ms', 1e6] : ['s', 1e9];
  const value = ns / size;
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)}\u00a0${unit}`;
}

function ago(seconds) {
  if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
const clock = (date) => date.toLocaleTimeString('en-GB');
const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);
const count = (number, what) => `${number} ${what}${number === 1 ? '' : 's'}`;
const kindOf = (actor) => (actor.kind === 'vm' ? 'VM' : actor.kind);
const thread = (wait) => (wait.vcpu === undefined ? wait.role : `vCPU ${wait.vcpu}`);

// The first eight colours are plain, the next ones striped.
function colour(process) {
  if (!state.colours.has(process)) state.colours.set(process, state.colours.size);
  return state.colours.get(process) % (2 * PALETTE);
}
const fill = (index) => `f${index % PALETTE}${index >= PALETTE ? ' striped' : ''}`;

function facts(data) {
  const { host } = data;
  const since = new Date(host.started_us / 1000);
  const all = [
    ['mode', host.mode === 'enforce' ? 'enforce: VMs of classes are held' : 'observe: nothing is changed'],
    ['back end', host.backend || (host.mode === 'enforce' ? 'holds nothing' : 'none')],
    ['version', host.version],
    ['since', since.toLocaleString('en-GB')],
    ['waits known from', host.waits.source + (host.waits.lost ? `, ${host.waits.lost} records lost` : '')],
  ];
  keyed(at('facts'), all, ([what]) => what,
    ([what]) => element('div', {}, element('dt', {}, what), element('dd')),
    (node, [, value]) => put(node.lastChild, name(value)));
  put(at('host'), name(data.host_name));
  document.title = `${name(data.host_name)}: Punctual`;
  const reason = host.waits.reason ? ` ${host.waits.reason}.` : '';
  put(at('source'), host.waits.source === 'samples'
    ? `Waits are known from samples: sums, not stories.${name(reason)}` : name(reason.trim()));
}

// What an operator should know, the most important first.
function reasons({ host, actors }) {
  const label = (actor) => `${kindOf(actor)} ${name(actor.name)}`;
  const all = host.warnings.map(({ text }) => text);
  if (host.reload_error) {
    all.unshift(`the configuration is refused, the one before stays: ${host.reload_error}`);
  }
  for (const actor of actors) {
    if (actor.not_held) all.push(`${label(actor)} is not held: ${actor.not_held}`);
    actor.warnings.forEach(({ text }) => all.push(`${label(actor)}: ${text}`));
  }
  return all;
}

function health(kind, lead, list) {
  const box = at('health');
  if (box.className !== `banner ${kind}`) box.className = `banner ${kind}`;
  put(at('lead'), lead);
  const shown = list.slice(0, SHOWN.reasons);
  if (list.length > shown.length) {
    shown.push(`and ${list.length - shown.length} more: punctual status has all`);
  }
  keyed(at('reasons'), shown.map((text, index) => [index, text]), ([index]) => index,
    () => element('li'), (node, [, text]) => put(node, name(text)));
  at('reasons').hidden = shown.length === 0;
}

function good(data) {
  const { host, actors } = data;
  const vms = actors.filter((actor) => actor.kind === 'vm');
  const all = [count(vms.length, 'VM')];
  if (vms.length < actors.length) all.push(count(actors.length - vms.length, 'unit'));
  const held = actors.filter((actor) => actor.state === 'held').length;
  const what = `${all.join(' and ')} on ${count(host.processors, 'processor')}` +
    (host.mode === 'enforce' ? `, ${held} held` : '');
  const list = reasons(data);
  if (list.length) health('warn', `\u26a0 ${what}; ${count(list.length, 'warning')}`, list);
  else health('good', `\u2713 ${what}; no warnings`, []);
  at('data').classList.remove('stale');
  at('data').hidden = false;
  at('empty').hidden = actors.length > 0;
}

// A host of which nothing is heard must not look like one on which nothing happens.
function bad(reason) {
  const since = clock(state.good_at || state.opened_at);
  const shows = state.good_at ? ' What is below is from then.' : '';
  health('bad', `\u2717 Not connected since ${since}: ${name(reason)}.${shows}`, []);
  at('data').classList.add('stale');
  at('data').hidden = !state.good_at;
  at('empty').hidden = true;
}

function remember({ host, history }) {
  const newest = state.moments.length ? state.moments[state.moments.length - 1].at_us : 0;
  if (host.started_us !== state.started_us || history.last < state.last) {
    state.moments = [];
    state.started_us = host.started_us;
  }
  const fresh = history.moments.filter(({ number }) => !state.moments.length || number > state.last);
  state.moments.push(...fresh);
  history.actors.forEach((actor) => state.names.set(actor.process, actor.name));
  state.last = history.last;
  const end = fresh.length ? fresh[fresh.length - 1].at_us : newest;
  const old = state.moments.findIndex(({ at_us }) => at_us > end - WINDOW_S * 1e6);
  if (old > 0) state.moments.splice(0, old);
  const used = new Set();
  state.moments.forEach(({ processors }) =>
    processors.forEach(({ actors }) => actors.forEach(({ process }) => used.add(process))));
  state.names.forEach((_, process) => { if (!used.has(process)) state.names.delete(process); });
  // Colours of those that are gone are free when all are.
  if (used.size === 0) state.colours.clear();
}

// By processor: what it did in each moment, and the sums.
function strips() {
  const all = new Map();
  for (const { at_us, length_us, processors } of state.moments) {
    for (const use of processors) {
      if (!all.has(use.processor)) {
        all.set(use.processor, { processor: use.processor, moments: [], ran: new Map(), length_us: 0,
          idle_us: 0, other_us: 0, more_us: 0, stolen_us: 0 });
      }
      const strip = all.get(use.processor);
      strip.moments.push({ at_us, length_us, use });
      strip.length_us += length_us;
      ['idle_us', 'other_us', 'more_us', 'stolen_us'].forEach((what) => { strip[what] += use[what]; });
      use.actors.forEach(({ process, run_us }) =>
        strip.ran.set(process, (strip.ran.get(process) || 0) + run_us));
    }
  }
  return [...all.values()];
}

// The shares of a processor with their colours, the greatest first; idle comes last.
function uses(strip) {
  const ran = [...strip.ran].sort((a, b) => b[1] - a[1]);
  const shown = ran.slice(0, SHOWN.uses).map(([process, us]) =>
    ({ key: process, us, fill: fill(colour(process)), text: name(state.names.get(process) || '?') }));
  const more_us = strip.more_us + sum(ran.slice(SHOWN.uses), ([, us]) => us);
  return [
    ...shown,
    { key: 'more', us: more_us, fill: 'other striped', text: 'other VMs and units' },
    { key: 'other', us: strip.other_us, fill: 'other', text: 'the rest of the host' },
    { key: 'stolen', us: strip.stolen_us, fill: 'stolen striped', text: 'a hypervisor below' },
    { key: 'idle', us: strip.idle_us, fill: 'idle', text: 'idle' },
  ].filter(({ key, us }) => key === 'idle' || us * 1000 > strip.length_us);
}

let paints = null;

// The colours of the style sheet for a canvas; striped ones are patterns.
function paint(context, classes) {
  paints = paints || new Map();
  if (!paints.has(classes)) {
    const probe = element('i', { class: classes });
    document.body.append(probe);
    const style = getComputedStyle(probe);
    let made = style.backgroundColor;
    if (classes.includes('striped')) {
      const tile = element('canvas', { width: 6, height: 6 });
      const of = tile.getContext('2d');
      of.fillStyle = made;
      of.fillRect(0, 0, 6, 6);
      of.fillStyle = style.getPropertyValue('--stripe');
      [0, 1, 2, 3, 4, 5].forEach((y) => of.fillRect((6 - y) % 6, y, 2, 1));
      made = context.createPattern(tile, 'repeat');
    }
    probe.remove();
    paints.set(classes, made);
  }
  return paints.get(classes);
}

function draw(canvas, strip, end_us) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.round(size * ratio));
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const context = canvas.getContext('2d');
  context.clearRect(0, 0, width, height);
  const place = (us) => width - ((end_us - us) / (WINDOW_S * 1e6)) * width;
  for (const { at_us, length_us, use } of strip.moments) {
    const left = Math.floor(place(at_us - length_us));
    const wide = Math.max(1, Math.ceil(place(at_us)) - left);
    const parts = [
      ...use.actors.map(({ process, run_us }) => [fill(colour(process)), run_us]),
      ['other striped', use.more_us], ['other', use.other_us], ['stolen striped', use.stolen_us],
    ];
    context.fillStyle = paint(context, 'idle');
    context.fillRect(left, 0, wide, height);
    let bottom = height;
    for (const [classes, us] of parts) {
      const high = (us / length_us) * height;
      context.fillStyle = paint(context, classes);
      context.fillRect(left, bottom - high, wide, high);
      bottom -= high;
    }
  }
}

function processors({ host }) {
  const all = strips();
  const pool = (processor) => host.pools.find((one) => one.processors.includes(processor));
  const end_us = state.moments.length ? state.moments[state.moments.length - 1].at_us : 0;
  keyed(at('processors'), all, ({ processor }) => processor,
    ({ processor }) => element('tr', { role: 'row' },
      element('th', { role: 'rowheader', scope: 'row', 'data-head': 'processor' }, String(processor)),
      element('td', { role: 'cell', 'data-head': 'pool' }, ''),
      element('td', { role: 'cell', class: 'wide' }, element('canvas', { 'aria-hidden': 'true' })),
      element('td', { role: 'cell', class: 'wide' }, element('ul', { class: 'uses', role: 'list' }))),
    (row, strip) => {
      const of = pool(strip.processor);
      put(row.cells[1], of ? name(of.name) : 'none');
      keyed(row.querySelector('ul'), uses(strip), ({ key }) => key,
        () => element('li', {}, element('span'), element('bdi', { class: 'name' }), element('span')),
        (node, use) => {
          node.children[0].className = `swatch ${use.fill}`;
          put(node.children[1], use.text);
          put(node.children[2], percent(use.us / strip.length_us));
        });
    });
  // After the tables have their widths.
  all.forEach((strip, index) => {
    const row = at('processors').children[index];
    draw(row.querySelector('canvas'), strip, end_us);
  });
}

const causeOrder = new Map();
function causeFill(cause) {
  if (!causeOrder.has(cause)) causeOrder.set(cause, causeOrder.size);
  return fill(causeOrder.get(cause) % (2 * PALETTE));
}

const HEADS = ['', 'class, pool', 'state', 'budget / period', 'delivered', 'runs', 'waited, last hour',
  'longest wake-up'];

function actorRow() {
  const cells = HEADS.map((head, index) => {
    const isWide = index === 0 || index === 6;
    const properties = { role: index ? 'cell' : 'rowheader', class: isWide ? 'wide' : '' };
    if (index) properties['data-head'] = head;
    else properties.scope = 'row';
    return element(index ? 'td' : 'th', properties);
  });
  cells[0].append(element('bdi', { class: 'name' }), element('small'));
  cells[2].append(element('span'), element('small'));
  cells[6].append(element('div', { class: 'bar', 'aria-hidden': 'true' }), element('small'));
  [1, 3, 4, 5, 7].forEach((index) => cells[index].append(element('span')));
  return element('tr', { role: 'row' }, ...cells);
}

function waited(cell, actor, most_ns) {
  const all_ns = waited_ns(actor);
  keyed(cell.firstChild, actor.lately, ({ cause }) => cause,
    ({ cause }) => element('i', { class: causeFill(cause) }),
    (node, { time_ns }) => { node.style.width = `${(100 * time_ns) / most_ns}%`; });
  const part = ({ cause, time_ns }) => `${cause} ${time(time_ns)} (${percent(time_ns / all_ns)})`;
  const shown = actor.lately.slice(0, SHOWN.causes).map(part);
  if (actor.lately.length > shown.length) shown.push(`and ${actor.lately.length - shown.length} more`);
  put(cell.lastChild, all_ns ? `${time(all_ns)}: ${shown.join(', ')}` : 'nothing known');
}

// What each column is sorted by; null: nothing is known. A budget counts by its share of the period.
const waited_ns = (actor) => sum(actor.lately, ({ time_ns }) => time_ns);
const SORTS = {
  name: ({ name: text }) => text,
  class: (actor) => [actor.class, actor.pool].filter(Boolean).join(', '),
  state: (actor) => actor.state,
  budget: ({ budget_ns: budget, period_ns: period }) =>
    (budget === null || !period ? null : budget / period),
  delivered: (actor) => actor.delivered_ratio,
  runs: (actor) => actor.run_share,
  waited: waited_ns,
  wakeup: (actor) => (actor.wakeups ? actor.latency_max_ns : null),
};
const TEXTS = ['name', 'class', 'state'];

// How VMs are arranged is in the address, so that a reload and a bookmark keep it: ?sort=-waited&name=relay.
const view = { sort: '', isDescending: false, filter: '' };

function readAddress() {
  const query = new URLSearchParams(location.search);
  const sort = query.get('sort') || '';
  const column = sort.replace(/^-/, '');
  view.sort = Object.hasOwn(SORTS, column) ? column : '';
  view.isDescending = view.sort !== '' && sort.startsWith('-');
  view.filter = (query.get('name') || '').slice(0, at('filter').maxLength);
  at('filter').value = view.filter;
}

function writeAddress() {
  const query = new URLSearchParams();
  if (view.sort) query.set('sort', (view.isDescending ? '-' : '') + view.sort);
  if (view.filter) query.set('name', view.filter);
  history.replaceState(null, '', query.size ? `?${query}` : location.pathname);
}

// Texts begin with the first, numbers with the greatest; then the other way round; then as the service has
// them.
function sortBy(column) {
  const first = !TEXTS.includes(column);
  if (view.sort !== column) [view.sort, view.isDescending] = [column, first];
  else if (view.isDescending === first) view.isDescending = !first;
  else [view.sort, view.isDescending] = ['', false];
}

function compare(a, b) {
  const [one, other] = [SORTS[view.sort](a), SORTS[view.sort](b)];
  if (one === null || other === null) return (one === null) - (other === null);
  const order = typeof one === 'string' ? one.localeCompare(other, 'en', { numeric: true }) : one - other;
  return view.isDescending ? -order : order;
}

// Those that the filter lets through, in order; what nothing is known of comes last.
function arranged(all) {
  const wanted = view.filter.toLowerCase();
  const list = all.filter((actor) => actor.name.toLowerCase().includes(wanted));
  return view.sort ? list.sort(compare) : list;
}

function heads() {
  document.querySelectorAll('[data-sort]').forEach((button) => {
    const head = button.parentElement;
    if (button.dataset.sort !== view.sort) head.removeAttribute('aria-sort');
    else head.setAttribute('aria-sort', view.isDescending ? 'descending' : 'ascending');
  });
}

function arrange() {
  writeAddress();
  heads();
  if (state.data && state.data.is_connected) actors(state.data);
}

function actors(data) {
  // A bar is as long as before when the filter changes.
  const most_ns = Math.max(1, ...data.actors.map(waited_ns));
  const list = arranged(data.actors);
  put(at('shown'), view.filter ? `${list.length} of ${data.actors.length} shown` : '');
  keyed(at('actors'), list, ({ process }) => process, actorRow, (row, actor) => {
    const cell = (index, text) => put(row.cells[index].firstChild, text);
    cell(0, name(actor.name));
    put(row.cells[0].lastChild, `${kindOf(actor)}, process ${actor.process}`);
    cell(1, [actor.class || 'no class', actor.pool].filter(Boolean).map(name).join(', '));
    cell(2, actor.is_paused ? `${actor.state}, paused` : actor.state);
    put(row.cells[2].lastChild, actor.warnings.length || actor.not_held ? '\u26a0 see above' : '');
    const [budget, period] = [actor.budget_ns, actor.period_ns];
    const of = actor.kind === 'vm' && !actor.shares_budget ? ' each vCPU' : '';
    cell(3, budget === null ? '-' : `${time(budget)} / ${period === null ? '-' : time(period)}${of}`);
    cell(4, actor.delivered_ratio === null ? '-' : `${(100 * actor.delivered_ratio).toFixed(2)}\u00a0%`);
    const what = actor.kind === 'vm' ? 'vCPU' : 'thread';
    const runs = actor.run_share === null ? '-' : percent(actor.run_share);
    cell(5, `${runs} on ${count(actor.threads, what)}`);
    waited(row.cells[6], actor, most_ns);
    cell(7, actor.wakeups ? time(actor.latency_max_ns) : '-');
  });
  const seen = [...causeOrder.keys()].filter((cause) =>
    data.actors.some(({ lately }) => lately.some((one) => one.cause === cause)));
  keyed(at('causes'), seen, (cause) => cause,
    (cause) => element('div', {}, element('dt', {},
      element('span', { class: `swatch ${causeFill(cause)}`, 'aria-hidden': 'true' }), ` ${cause}:`),
    element('dd')),
    (node, cause) => put(node.lastChild, data.cause_words[cause] || ''));
}

// The clocks of two answers differ a little, so a wait is known by about when it began.
const sameWait = (a, b) => a.process === b.process && thread(a.wait) === thread(b.wait) &&
  Math.abs(a.wait.began_us - b.wait.began_us) < 5000;
let known = [];

function worst(data) {
  const all = data.worst.map((one) => {
    const before = known.find((other) => sameWait(one, other));
    return { ...one, key: before ? before.key : `${one.process} ${thread(one.wait)} ${one.wait.began_us}` };
  });
  known = all;
  keyed(at('worst'), all, ({ key }) => key,
    () => element('details', {},
      element('summary', {}, element('b'), ' ', element('bdi', { class: 'name' }), ' ', element('span')),
      element('table', {},
        element('thead', {}, element('tr', {},
          ...['time', 'cause', 'who', 'processor'].map((head) => element('th', { scope: 'col' }, head)))),
        element('tbody')),
      element('p', { class: 'more' })),
    (node, one) => story(node, one, data.at_us));
  if (!all.length) {
    keyed(at('worst'), [0], () => 'none', () => element('p', {}, 'No wait is known.'), () => {});
  }
}

function story(node, { name: vm, wait }, now_us) {
  const [summary, table, more] = node.children;
  put(summary.children[0], time(wait.time_ns));
  put(summary.children[1], name(vm));
  const greatest = wait.steps.reduce((a, b) => (b.time_ns > a.time_ns ? b : a), { time_ns: -1 });
  const text = [`${thread(wait)}${wait.was_woken ? ', after a wake-up' : ''}`,
    `${ago((now_us - wait.began_us) / 1e6)} ago${wait.is_open ? ', and it goes on' : ''}`,
    greatest.cause ? `mostly ${greatest.cause}${greatest.by ? `: ${name(greatest.by)}` : ''}` : ''];
  put(summary.children[2], text.filter(Boolean).join(', '));
  keyed(table.tBodies[0], wait.steps.slice(0, SHOWN.steps).map((step, index) => [index, step]),
    ([index]) => index, () => element('tr', {}, ...'abcd'.split('').map(() => element('td'))),
    (row, [, step]) => {
      const cells = [time(step.time_ns), step.cause, step.by ? name(step.by) : '-',
        step.processor === undefined ? '-' : String(step.processor)];
      cells.forEach((cell, index) => put(row.cells[index], cell));
    });
  const beyond = wait.steps.length - SHOWN.steps;
  put(more, beyond > 0 ? `and ${count(beyond, 'more step')}: punctual why has all` : '');
  more.hidden = beyond <= 0;
}

function show(data) {
  state.data = data;
  if (!data.is_connected) {
    if (data.host_name) put(at('host'), name(data.host_name));
    return bad(data.reason);
  }
  state.good_at = new Date();
  remember(data);
  facts(data);
  good(data);
  processors(data);
  actors(data);
  worst(data);
  return put(at('updated'), `Updated at ${clock(state.good_at)}.`);
}

async function ask() {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), ANSWER_MS);
  try {
    const answer = await fetch(`data.json?since=${state.last}&started_us=${state.started_us}`,
      { signal: controller.signal, cache: 'no-store' });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    const isSlow = error.name === 'AbortError';
    const isGone = error instanceof TypeError;
    bad(isSlow ? `no answer within ${ANSWER_MS / 1000} s`
      : isGone ? '`punctual status --web` does not answer' : String(error.message));
  } finally {
    clearTimeout(timer);
  }
}

let timer = null;
async function poll() {
  clearTimeout(timer);
  timer = null;
  // Nobody looks: nothing is asked for.
  if (state.isPaused || document.hidden) return;
  await ask();
  clearTimeout(timer);
  timer = setTimeout(poll, POLL_MS);
}

at('pause').addEventListener('click', () => {
  state.isPaused = !state.isPaused;
  at('pause').setAttribute('aria-pressed', String(state.isPaused));
  if (!state.isPaused) poll();
  else put(at('updated'), `Paused at ${clock(new Date())}.`);
});
document.querySelectorAll('[data-sort]').forEach((button) => button.addEventListener('click', () => {
  sortBy(button.dataset.sort);
  arrange();
}));
at('filter').addEventListener('input', () => {
  view.filter = at('filter').value;
  arrange();
});
readAddress();
heads();
document.addEventListener('visibilitychange', poll);
const redraw = () => {
  paints = null;
  if (state.data && state.data.is_connected) processors(state.data);
};
window.addEventListener('resize', redraw);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
poll();
