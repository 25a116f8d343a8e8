'use strict';
// The theme's button and the timeline. Everything else on the page works without this.
(() => {
  const byId = (id) => document.getElementById(id);

  // ---- Theme: the system's until the reader chooses.
  const root = document.documentElement;
  const systemDark = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : systemDark.matches);
  const themed = [];
  const theme = byId('theme');
  const showTheme = () => {
    theme.textContent = isDark() ? 'Light' : 'Dark';
    theme.setAttribute('aria-label', isDark() ? 'Use light colours' : 'Use dark colours');
    themed.forEach((redraw) => redraw());
  };
  theme.hidden = false;
  theme.addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    showTheme();
  });
  systemDark.addEventListener('change', showTheme);
  showTheme();

  const chart = byId('chart');
  if (!chart) return;

  // ---- Data: see `timeline/encode.rs` for the form of the numbers.
  const header = JSON.parse(byId('timeline-header').textContent);
  const text = atob(byId('timeline-data').textContent);
  byId('timeline-data').remove();
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  let at = 0;
  // Numbers up to 2^53 ns, 104 days, are exact.
  const next = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  const signed = () => {
    const value = next();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  };
  const FROM = header.from, TO = header.to;
  const EXECUTION = 'execution';
  const labels = header.labels.map(([name, use, colour]) =>
    ({ name, use: use === 'network' ? EXECUTION : use, colour }));

  const readRow = (head, index) => {
    const n = head.slices, begin = new Float64Array(n), end = new Float64Array(n), label = new Uint32Array(n);
    const busy = new Float64Array(n + 1); // executing time of the slices before
    let last = FROM;
    for (let i = 0; i < n; i++) {
      begin[i] = last + next();
      last = end[i] = begin[i] + next();
      label[i] = next();
      busy[i + 1] = busy[i] + (labels[label[i]].use === EXECUTION ? end[i] - begin[i] : 0);
    }
    const stepAt = new Float64Array(head.steps), stepTo = new Float64Array(head.steps);
    let time = FROM, value = 0, most = 0;
    for (let i = 0; i < head.steps; i++) {
      stepAt[i] = time += next();
      stepTo[i] = value += signed();
      most = Math.max(most, value);
    }
    const j = head.jobs, release = new Float64Array(j), due = new Float64Array(j), done = new Float64Array(j);
    const number = new Float64Array(j), openUntil = new Float64Array(j), misses = [];
    let released = FROM, count = -1, latest = 0;
    for (let i = 0; i < j; i++) {
      release[i] = released += signed();
      due[i] = released + signed();
      const response = next();
      done[i] = response ? released + response - 1 : Infinity;
      number[i] = count += 1 + signed();
      openUntil[i] = latest = Math.max(latest, Math.min(done[i], TO));
      if (due[i] <= TO && done[i] > due[i]) misses.push(due[i]);
    }
    return { ...head, index, colour: header.colours[index], begin, end, label, busy, stepAt, stepTo, most,
      release, due, done, number, openUntil, misses: Float64Array.from(misses).sort() };
  };
  const all = header.rows.map(readRow);
  const allMisses = Float64Array.from(new Set(all.flatMap((row) => Array.from(row.misses)))).sort();

  // ---- Search: the first index whose value exceeds x.
  const above = (values, x, low = 0, high = values.length) => {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > x) high = middle; else low = middle + 1;
    }
    return low;
  };

  // ---- Times as the rest of the page writes them.
  const UNITS = [['s', 1e9], ['ms', 1e6], ['us', 1e3], ['ns', 1]];
  const duration = (ns) => {
    if (ns === 0) return '0';
    const [unit, scale] = UNITS.find(([, scale]) => Math.abs(ns) >= scale) || UNITS[3];
    const value = ns / scale;
    return `${unit === 'ns' ? value : value.toPrecision(3)} ${unit}`;
  };
  // A point in time, as exactly as `step` asks for, in the unit that suits `like`.
  const instant = (ns, step, like = ns) => {
    const [unit, scale] = UNITS.find(([, scale]) => Math.max(Math.abs(like), step) >= scale) || UNITS[3];
    const decimals = Math.min(9, Math.max(0, Math.ceil(Math.log10(scale / step) - 1e-9)));
    return `${(ns / scale).toFixed(decimals)} ${unit}`;
  };
  const parseTime = (text) => {
    const match = /^\s*([0-9]*\.?[0-9]+)\s*(ns|us|µs|ms|s|min)\s*$/.exec(text);
    if (!match) return NaN;
    const scale = { ns: 1, us: 1e3, 'µs': 1e3, ms: 1e6, s: 1e9, min: 6e10 }[match[2]];
    return Number(match[1]) * scale;
  };

  // ---- What is shown.
  const LEAST = 100; // ns: nothing is to be seen in less
  const view = { from: FROM, to: TO, group: '', kinds: 'all', selected: -1, slice: -1, top: 0 };
  let rows = [];
  let height = 0;
  const HEAD = 24, AXIS = 24;
  const rowHeight = (row) => {
    if (row.kind === 'processor') return 28;
    if (row.kind === 'vcpu') return row.steps > 1 ? 58 : 28;
    return row.jobs ? 34 : 26;
  };
  const layout = () => {
    rows = [];
    let y = AXIS, group = null;
    for (const row of all) {
      const isTask = row.kind === 'task';
      if (view.kinds === 'no-tasks' && isTask) continue;
      if (view.kinds === 'tasks' && !isTask) continue;
      if (view.group && row.kind !== 'processor' && row.group !== view.group) continue;
      if (row.group !== group) {
        group = row.group;
        rows.push({ title: group, y, height: HEAD });
        y += HEAD;
      }
      rows.push({ row, y, height: rowHeight(row) });
      y += rowHeight(row);
    }
    height = y + 6;
    view.selected = Math.min(view.selected, rows.length - 1);
  };

  const box = byId('rows'), canvas = byId('rows-canvas'), overview = byId('overview');
  const context = canvas.getContext('2d'), small = overview.getContext('2d');
  let width = 0, seen = 0, left = 0, colours = {};
  const readColours = () => {
    const of = getComputedStyle(matchMedia('print').matches || chart.dataset.paper ? byId('light') : root);
    const get = (name) => of.getPropertyValue(`--${name}`).trim();
    colours = { series: [1, 2, 3, 4, 5, 6, 7, 8].map((i) => get(`c${i}`)) };
    const names = ['card', 'page', 'track', 'line', 'ink', 'ink2', 'ink3', 'accent', 'on-fill', 'idle',
      'overhead', 'miss'];
    for (const name of names) {
      colours[name] = get(name);
    }
  };
  const fit = (canvas, context, width, height) => {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  };
  const measure = () => {
    width = box.clientWidth;
    left = width < 560 ? 84 : 150;
    seen = Math.min(height, chart.dataset.paper ? 900 : Math.max(240, Math.min(680, innerHeight * 0.7)));
    const isPaper = Boolean(chart.dataset.paper);
    box.style.height = isPaper ? 'auto' : `${seen + 2}px`;
    byId('rows-height').style.height = isPaper ? 'auto' : `${height}px`;
    fit(canvas, context, width, seen);
    // A sheet of paper has another width than the window: scaled as a whole.
    if (isPaper) canvas.style.height = 'auto';
    fit(overview, small, overview.clientWidth, 34);
  };
  const x = (t) => left + (t - view.from) / (view.to - view.from) * (width - left);
  const t = (px) => view.from + (px - left) / (width - left) * (view.to - view.from);
  const FONT = '12px system-ui, "DejaVu Sans", sans-serif';

  const clip = (text, room) => {
    if (context.measureText(text).width <= room) return text;
    while (text.length > 1 && context.measureText(`${text}…`).width > room) text = text.slice(0, -1);
    return `${text}…`;
  };

  // A name where enough of it fits to tell it from others.
  const write = (text, px, py, room) => {
    const fits = clip(text, room);
    if (fits === text || fits.length > 4) context.fillText(fits, px, py);
  };

  // Slices wider than a pixel as they are; of the others, per pixel, the share of time that executes.
  const drawSlices = (row, top, tall) => {
    const { begin, end, label, busy } = row;
    const pixel = (view.to - view.from) / (width - left);
    const isProcessor = row.kind === 'processor';
    let i = above(end, view.from);
    while (i < begin.length && begin[i] < view.to) {
      const x0 = Math.max(left, x(begin[i])), x1 = Math.min(width, x(end[i]));
      if (x1 - x0 >= 1) {
        const of = labels[label[i]], wide = x1 - x0;
        if (of.use === EXECUTION) {
          context.fillStyle = colours.series[isProcessor ? of.colour : row.colour];
          context.fillRect(x0, top, wide - (wide > 3 ? 1 : 0), tall);
          if (wide > 26) {
            context.fillStyle = colours['on-fill'];
            write(of.name, x0 + 4, top + tall / 2 + 0.5, wide - 8);
          }
        } else if (of.use === 'away') {
          context.fillStyle = colours.miss;
          context.fillRect(x0, top + tall / 3, wide, tall / 3);
        } else if (of.use === 'overhead') {
          context.fillStyle = colours.overhead;
          context.fillRect(x0, top, wide, tall);
        } else {
          context.fillStyle = colours.idle;
          context.fillRect(x0, top + tall - 5, wide, 5);
          if (of.use === 'idle-for' && wide > 50) {
            context.fillStyle = colours.ink2;
            write(of.name, x0 + 4, top + tall / 2 - 2, wide - 8);
          }
        }
        i++;
      } else {
        const column = Math.floor(x0), to = t(column + 1);
        let after = Math.max(i + 1, above(begin, to, i));
        // A wide slice that begins in this pixel is drawn as it is, next.
        if (after > i + 1 && x(end[after - 1]) - x(begin[after - 1]) >= 1) after--;
        const from = Math.max(t(column), view.from);
        let time = busy[after] - busy[i];
        if (labels[label[i]].use === EXECUTION) time -= Math.max(0, from - begin[i]);
        if (labels[label[after - 1]].use === EXECUTION) time -= Math.max(0, end[after - 1] - to);
        const share = Math.max(0, Math.min(1, time / pixel));
        if (share > 0) {
          context.fillStyle = isProcessor ? colours.ink3 : colours.series[row.colour];
          const tallness = Math.max(1.5, share * tall);
          context.fillRect(column, top + tall - tallness, 1, tallness);
        }
        i = after;
      }
    }
  };

  const drawBudget = (row, top, tall) => {
    const { stepAt, stepTo, most } = row;
    if (stepAt.length < 2 || most === 0) return;
    const y = (value) => top + tall - value / most * tall;
    let i = Math.max(0, above(stepAt, view.from) - 1);
    context.strokeStyle = colours.series[row.colour];
    context.lineWidth = 1.2;
    context.beginPath();
    let px = Math.max(left, x(stepAt[i])), value = stepTo[i];
    context.moveTo(px, y(value));
    for (i++; i < stepAt.length && stepAt[i] <= view.to; i++) {
      const to = x(stepAt[i]);
      if (to - px < 0.7) {
        // Many steps in a pixel: from the least to the greatest of them.
        let least = Math.min(value, stepTo[i]), greatest = Math.max(value, stepTo[i]);
        const past = above(stepAt, t(px + 1), i);
        for (; i + 1 < past; i++) {
          least = Math.min(least, stepTo[i + 1]);
          greatest = Math.max(greatest, stepTo[i + 1]);
        }
        context.lineTo(px, y(greatest));
        context.lineTo(px, y(least));
        value = stepTo[i];
        context.lineTo(px, y(value));
        px += 1;
        context.lineTo(px, y(value));
      } else {
        context.lineTo(to, y(value));
        value = stepTo[i];
        context.lineTo(to, y(value));
        px = to;
      }
    }
    context.lineTo(Math.max(px, Math.min(width, x(Math.min(TO, view.to)))), y(value));
    context.stroke();
  };

  const drawJobs = (row, top) => {
    const { release, due, done, openUntil, misses } = row;
    const first = above(openUntil, view.from), past = above(release, view.to);
    if (past - first < (width - left) / 3) {
      for (let i = first; i < past; i++) {
        const x0 = Math.max(left, x(release[i])), x1 = Math.min(width, x(Math.min(done[i], TO)));
        if (x1 < left) continue;
        const isLate = due[i] <= TO && done[i] > due[i];
        context.fillStyle = isLate ? colours.miss : colours.ink3;
        context.fillRect(x0, top + 2, Math.max(1, x1 - x0), isLate ? 3 : 2);
        if (release[i] >= view.from) context.fillRect(x0, top - 1, 1, 6);
        const deadline = x(due[i]);
        if (deadline >= left && deadline <= width) {
          context.fillStyle = colours.ink;
          context.fillRect(deadline - 0.5, top - 1, 1, 7);
        }
      }
    }
    // Every miss is under a mark; misses within three pixels share one.
    context.fillStyle = colours.miss;
    let i = above(misses, view.from - 1);
    while (i < misses.length && misses[i] <= view.to) {
      const px = x(misses[i]);
      context.beginPath();
      context.moveTo(px - 4.5, top - 6);
      context.lineTo(px + 4.5, top - 6);
      context.lineTo(px, top + 2);
      context.fill();
      i = above(misses, t(px + 3), i);
    }
  };

  const niceStep = (least) => {
    const power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least);
  };

  const drawAxis = () => {
    const step = niceStep((view.to - view.from) / Math.max(2, (width - left) / 110));
    context.fillStyle = colours.card;
    context.fillRect(0, 0, width, AXIS);
    context.textAlign = 'center';
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      const px = x(at);
      context.fillStyle = colours.line;
      context.fillRect(px, AXIS - 5, 1, seen);
      context.fillStyle = colours.ink3;
      const label = instant(at, step, view.to), half = context.measureText(label).width / 2;
      if (px - half > 2) context.fillText(label, Math.min(px, width - half - 3), 11);
    }
    context.textAlign = 'left';
    context.fillStyle = colours.line;
    context.fillRect(0, AXIS - 1, width, 1);
  };

  const drawRow = (entry, offset) => {
    const y = entry.y - offset, { row } = entry;
    if (!row) {
      context.fillStyle = colours.track;
      context.fillRect(0, y, width, entry.height);
      context.fillStyle = colours.ink;
      context.font = `600 ${FONT}`;
      context.fillText(entry.title, 8, y + entry.height / 2 + 0.5);
      context.font = FONT;
      return;
    }
    context.save();
    context.beginPath();
    context.rect(left, y, width - left, entry.height);
    context.clip();
    const tall = 18;
    drawSlices(row, y + 5, row.kind === 'task' ? 15 : tall);
    if (row.kind === 'vcpu' && row.steps > 1) drawBudget(row, y + 29, 24);
    if (row.jobs) drawJobs(row, y + 25);
    context.restore();
    context.fillStyle = colours.ink2;
    context.fillText(clip(row.name, left - 18), 10, y + (row.kind === 'task' ? 13 : 14.5));
    if (row.kind === 'vcpu' && row.steps > 1) {
      context.fillStyle = colours.ink3;
      context.fillText(clip(`budget ≤ ${duration(row.most)}`, left - 18), 10, y + 43);
    }
    context.fillStyle = colours.line;
    context.fillRect(0, y + entry.height - 1, width, 1);
  };

  const draw = () => {
    scheduled = false;
    context.font = FONT;
    context.textBaseline = 'middle';
    context.fillStyle = colours.card;
    context.fillRect(0, 0, width, seen);
    const offset = chart.dataset.paper ? 0 : box.scrollTop;
    drawAxis();
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, seen - AXIS);
    context.clip();
    rows.forEach((entry, i) => {
      if (entry.y + entry.height < offset + AXIS || entry.y > offset + seen) return;
      drawRow(entry, offset);
      if (i === view.selected) {
        context.strokeStyle = colours.accent;
        context.lineWidth = 2;
        context.strokeRect(1, entry.y - offset + 1, width - 2, entry.height - 3);
        if (view.slice >= 0) {
          const { begin, end } = entry.row;
          context.strokeStyle = colours.ink;
          const x0 = Math.max(left, x(begin[view.slice])), x1 = Math.min(width, x(end[view.slice]));
          if (x1 > left && x0 < width) context.strokeRect(x0, entry.y - offset + 4, Math.max(2, x1 - x0), 17);
        }
      }
    });
    context.restore();
    context.fillStyle = colours.line;
    context.fillRect(left - 1, AXIS, 1, seen);
    drawOverview();
  };

  const drawOverview = () => {
    const wide = overview.clientWidth, at = (t) => (t - FROM) / (TO - FROM) * wide;
    small.fillStyle = colours.track;
    small.fillRect(0, 0, wide, 34);
    const processors = all.filter((row) => row.kind === 'processor');
    small.fillStyle = colours.ink3;
    for (let px = 0; px < wide; px++) {
      const from = FROM + px / wide * (TO - FROM), to = FROM + (px + 1) / wide * (TO - FROM);
      let share = 0;
      for (const { begin, end, busy, label } of processors) {
        const i = above(end, from), past = above(begin, to);
        if (past <= i) continue;
        let time = busy[past] - busy[i];
        if (labels[label[i]].use === EXECUTION) time -= Math.max(0, from - begin[i]);
        if (labels[label[past - 1]].use === EXECUTION) time -= Math.max(0, end[past - 1] - to);
        share += time / (to - from);
      }
      const tall = Math.min(1, share / Math.max(1, processors.length)) * 20;
      small.fillRect(px, 32 - tall, 1, tall);
    }
    small.fillStyle = colours.miss;
    for (let i = 0; i < allMisses.length;) {
      const px = at(allMisses[i]);
      small.fillRect(px - 0.75, 2, 1.5, 7);
      i = above(allMisses, FROM + (px + 1) / wide * (TO - FROM), i);
    }
    const x0 = at(view.from), x1 = Math.max(x0 + 3, at(view.to));
    small.globalAlpha = 0.55;
    small.fillStyle = colours.card;
    small.fillRect(0, 0, x0, 34);
    small.fillRect(x1, 0, wide - x1, 34);
    small.globalAlpha = 1;
    small.strokeStyle = colours.accent;
    small.lineWidth = 2;
    small.strokeRect(x0 + 1, 1, x1 - x0 - 2, 32);
  };

  let scheduled = false;
  const redraw = () => {
    if (!scheduled) {
      scheduled = true;
      requestAnimationFrame(draw);
    }
  };

  // ---- What is shown, in words: the status line, the inputs and the table.
  const missesIn = (from, to) => {
    const ofRow = ({ row }) => (row ? above(row.misses, to) - above(row.misses, from - 1) : 0);
    return rows.reduce((sum, entry) => sum + ofRow(entry), 0);
  };
  const executingIn = ({ begin, end, busy, label }, from, to) => {
    const i = above(end, from), past = above(begin, to);
    if (past <= i) return 0;
    let time = busy[past] - busy[i];
    if (labels[label[i]].use === EXECUTION) time -= Math.max(0, from - begin[i]);
    if (labels[label[past - 1]].use === EXECUTION) time -= Math.max(0, end[past - 1] - to);
    return Math.max(0, time);
  };
  const percent = (share) => (share === 0 ? '0' : share >= 1 ? '100 %' : `${(share * 100).toFixed(1)} %`);
  const cells = Array.from(byId('timeline').querySelectorAll('tbody tr'), (tr) => tr.children);
  const folded = byId('timeline').querySelector('details');
  const updateTable = () => {
    if (!folded.open) return;
    all.forEach((row, i) => {
      const of = cells[i];
      if (!of) return;
      const { from, to } = view;
      if (row.kind !== 'network') of[1].textContent = percent(executingIn(row, from, to) / (to - from));
      of[2].textContent = Math.max(0, above(row.begin, to - 1) - above(row.end, from));
      if (row.jobs) {
        of[3].textContent = above(row.release, to - 1) - above(row.release, from - 1);
        of[4].textContent = above(row.misses, to) - above(row.misses, from - 1);
      }
      if (row.steps) {
        let least = Infinity;
        for (let k = Math.max(0, above(row.stepAt, from) - 1); k < row.steps && row.stepAt[k] <= to; k++) {
          least = Math.min(least, row.stepTo[k]);
        }
        of[5].textContent = duration(least);
      }
    });
  };
  folded.addEventListener('toggle', updateTable);
  let saying = 0;
  const say = (text) => {
    clearTimeout(saying);
    saying = setTimeout(() => { byId('chart-status').textContent = text; }, 150);
  };
  const describe = () => {
    const misses = missesIn(view.from, view.to), step = (view.to - view.from) / 1000;
    const missed = misses === 1 ? '1 missed deadline' : `${misses.toLocaleString('en')} missed deadlines`;
    const interval = `${instant(view.from, step, view.to)} to ${instant(view.to, step)}`;
    return `${interval}, ${duration(view.to - view.from)} with ${missed} in the rows shown.`;
  };
  const changed = (words) => {
    const step = (view.to - view.from) / 1000;
    chart.dataset.fromNs = Math.round(view.from);
    chart.dataset.toNs = Math.round(view.to);
    const selected = rows[view.selected];
    chart.dataset.row = selected && selected.row ? selected.row.name : '';
    byId('chart-from').value = instant(view.from, step, view.to);
    byId('chart-to').value = instant(view.to, step);
    for (const id of ['chart-from', 'chart-to']) byId(id).removeAttribute('aria-invalid');
    say(words || describe());
    updateTable();
    redraw();
  };

  // ---- Moving about.
  const show = (from, to, words) => {
    const length = Math.min(TO - FROM, Math.max(LEAST, to - from));
    if (to - from < LEAST) from = (from + to - LEAST) / 2;
    view.from = Math.max(FROM, Math.min(from, TO - length));
    view.to = view.from + length;
    changed(words);
  };
  const zoom = (factor, around = (view.from + view.to) / 2) => {
    show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  };
  const move = (part) => {
    const by = (view.to - view.from) * part;
    show(view.from + by, view.to + by);
  };
  const toMiss = (direction) => {
    const middle = (view.from + view.to) / 2, shown = rows.filter(({ row }) => row && row.misses.length);
    let found = NaN;
    for (const { row: { misses } } of shown) {
      const i = direction > 0 ? above(misses, middle + 1) : above(misses, middle - 1) - 1;
      const candidate = misses[i];
      if (candidate === undefined) continue;
      if (Number.isNaN(found) || (candidate - found) * direction < 0) found = candidate;
    }
    if (Number.isNaN(found)) {
      say(`No missed deadline ${direction > 0 ? 'after' : 'before'} the middle of the interval.`);
      return;
    }
    const missed = shown.filter(({ row }) => row.misses[above(row.misses, found) - 1] === found);
    const names = missed.map(({ row }) => `${row.group}/${row.name}`);
    const half = Math.min((view.to - view.from) / 2, 50e6);
    show(found - half, found + half, `Deadline of ${names.join(', ')} missed at ${instant(found, 1000)}.`);
  };
  // Makes a row the chosen one, in sight.
  const reveal = (i) => {
    const entry = rows[i];
    view.selected = i;
    view.slice = -1;
    if (entry.y - AXIS < box.scrollTop) box.scrollTop = entry.y - AXIS - HEAD;
    if (entry.y + entry.height > box.scrollTop + seen) box.scrollTop = entry.y + entry.height - seen;
  };
  // A job with as much time before and after it as it took.
  const showJob = (row, from, to, words) => {
    let i = rows.findIndex((entry) => entry.row === row);
    if (i < 0) {
      byId('chart-group').value = '';
      byId('chart-rows').value = 'all';
      relayout();
      i = rows.findIndex((entry) => entry.row === row);
    }
    reveal(i);
    const around = Math.max(to - from, 1e4);
    show(from - around, to + around, words);
  };
  // The first job that missed its deadline, of all rows.
  const firstMiss = () => {
    const late = all.filter((row) => row.misses.length);
    const row = late.reduce((a, b) => (a && a.misses[0] <= b.misses[0] ? a : b), null);
    if (!row) return;
    const i = row.due.findIndex((due, k) => due === row.misses[0] && row.done[k] > due);
    const latest = row.due[i] + 4 * (row.due[i] - row.release[i]);
    const to = Math.min(Math.max(row.due[i], row.done[i]), TO, latest);
    const when = instant(row.due[i], 1000);
    showJob(row, Math.max(FROM, row.release[i]), to,
      `The first missed deadline: ${row.group}/${row.name} at ${when}. Whole (0) shows everything.`);
  };
  document.querySelectorAll('a[data-task]').forEach((link) => {
    link.addEventListener('click', (event) => {
      const row = all.find((row) => row.kind === 'task' && `${row.group}/${row.name}` === link.dataset.task);
      if (!row) return;
      event.preventDefault();
      const from = Number(link.dataset.fromNs), to = Number(link.dataset.toNs);
      const response = `released at ${instant(from, 1000)}, took ${duration(to - from)}`;
      showJob(row, from, to, `${row.group}/${row.name}: ${response}.`);
      byId('timeline').scrollIntoView();
      box.focus({ preventScroll: true });
    });
  });
  const tell = (row, i) => {
    const of = labels[row.label[i]];
    const interval = `${instant(row.begin[i], 1000)} to ${instant(row.end[i], 1000)}`;
    return `${row.name}: ${of.name}, ${interval}, ${duration(row.end[i] - row.begin[i])}`;
  };
  const choose = (direction) => {
    let i = view.selected;
    do i += direction; while (i >= 0 && i < rows.length && !rows[i].row);
    if (i < 0 || i >= rows.length) return;
    reveal(i);
    const entry = rows[i];
    const share = percent(executingIn(entry.row, view.from, view.to) / (view.to - view.from));
    const does = entry.row.kind === 'network' ? 'has a step under way for' : 'executes';
    changed(`${entry.row.group}, ${entry.row.name}: ${does} ${share} of the interval shown.`);
  };
  const stepSlice = (direction) => {
    const entry = rows[view.selected];
    if (!entry || !entry.row || !entry.row.begin.length) return;
    const { begin, end } = entry.row;
    const isSeen = view.slice >= 0 && end[view.slice] > view.from && begin[view.slice] < view.to;
    const start = direction > 0 ? above(end, view.from) : above(begin, view.to) - 1;
    const i = isSeen ? view.slice + direction : start;
    if (i < 0 || i >= begin.length) return;
    view.slice = i;
    const half = (view.to - view.from) / 2, middle = (begin[i] + end[i]) / 2;
    if (begin[i] < view.from || end[i] > view.to) show(middle - half, middle + half, tell(entry.row, i));
    else changed(tell(entry.row, i));
  };

  const actions = {
    in: () => zoom(0.5), out: () => zoom(2), all: () => show(FROM, TO),
    left: () => move(-0.25), right: () => move(0.25),
    'miss-before': () => toMiss(-1), 'miss-after': () => toMiss(1),
  };
  chart.querySelectorAll('[data-do]').forEach((button) => {
    button.addEventListener('click', actions[button.dataset.do]);
  });
  const keys = {
    '+': actions.in, '=': actions.in, '-': actions.out, _: actions.out, 0: actions.all,
    ArrowLeft: actions.left, ArrowRight: actions.right,
    Home: () => show(FROM, FROM + view.to - view.from), End: () => show(TO - (view.to - view.from), TO),
    ArrowUp: () => choose(-1), ArrowDown: () => choose(1), ',': () => stepSlice(-1), '.': () => stepSlice(1),
    m: actions['miss-after'], M: actions['miss-before'],
  };
  box.addEventListener('keydown', (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  const typed = () => {
    const from = parseTime(byId('chart-from').value), to = parseTime(byId('chart-to').value);
    const isGood = from < to && from < TO && to > FROM;
    for (const id of ['chart-from', 'chart-to']) byId(id).toggleAttribute('aria-invalid', false);
    if (isGood) show(from, to);
    else {
      for (const id of ['chart-from', 'chart-to']) byId(id).setAttribute('aria-invalid', 'true');
      say('Times need a unit, for example 120 ms, and the first must be less than the second.');
    }
  };
  for (const id of ['chart-from', 'chart-to']) {
    byId(id).addEventListener('change', typed);
    // Leaving one field may have rewritten the other.
    byId(id).addEventListener('focus', (event) => event.target.select());
    // Without a form, Enter alone is no change.
    byId(id).addEventListener('keydown', (event) => { if (event.key === 'Enter') typed(); });
  }
  const relayout = () => {
    view.group = byId('chart-group').value;
    view.kinds = byId('chart-rows').value;
    view.slice = -1;
    layout();
    measure();
    changed();
  };
  byId('chart-group').addEventListener('change', relayout);
  byId('chart-rows').addEventListener('change', relayout);

  // ---- Pointer: one drags, two zoom, none (hovering) asks.
  const pointers = new Map();
  const within = (event) => {
    const area = canvas.getBoundingClientRect();
    return { px: event.clientX - area.left, py: event.clientY - area.top };
  };
  box.addEventListener('pointerdown', (event) => {
    if (event.button) return;
    pointers.set(event.pointerId, within(event));
    // A touch may still be a scroll; it is ours once it moves sideways.
    if (event.pointerType === 'mouse') box.setPointerCapture(event.pointerId);
  });
  box.addEventListener('pointermove', (event) => {
    const before = pointers.get(event.pointerId), now = within(event);
    if (!before) return hover(now);
    hideTip();
    const others = Array.from(pointers).filter(([id]) => id !== event.pointerId);
    if (others.length) {
      const other = others[0][1];
      const gap = Math.abs(before.px - other.px), after = Math.abs(now.px - other.px);
      if (gap > 8 && after > 8) zoom(gap / after, t((now.px + other.px) / 2));
    } else {
      box.classList.add('dragged');
      const by = t(before.px) - t(now.px);
      show(view.from + by, view.to + by);
    }
    pointers.set(event.pointerId, now);
  });
  const released = (event) => {
    pointers.delete(event.pointerId);
    box.classList.remove('dragged');
  };
  for (const name of ['pointerup', 'pointercancel', 'pointerleave']) box.addEventListener(name, released);
  box.addEventListener('dblclick', (event) => zoom(0.4, t(within(event).px)));
  box.addEventListener('wheel', (event) => {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    const distance = Math.max(-80, Math.min(80, event.deltaY));
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(distance / 160), t(within(event).px));
    else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) move(sideways / 1000);
    else return;
    event.preventDefault();
  }, { passive: false });
  const jump = (event) => {
    const area = overview.getBoundingClientRect(), half = (view.to - view.from) / 2;
    const middle = FROM + (event.clientX - area.left) / area.width * (TO - FROM);
    show(middle - half, middle + half);
  };
  overview.addEventListener('pointerdown', (event) => {
    overview.setPointerCapture(event.pointerId);
    jump(event);
  });
  overview.addEventListener('pointermove', (event) => { if (event.buttons) jump(event); });

  const tip = byId('tip');
  const hideTip = () => { tip.hidden = true; };
  const hover = ({ px, py }) => {
    const y = py + box.scrollTop, entry = rows.find((entry) => y >= entry.y && y < entry.y + entry.height);
    const time = t(px);
    if (!entry || !entry.row || px < left || py < AXIS || time > TO) return hideTip();
    const { row } = entry, lines = [`${row.group}, ${row.name}`];
    const pixel = (view.to - view.from) / (width - left);
    const i = above(row.end, time);
    if (i < row.begin.length && row.begin[i] <= time) {
      const of = labels[row.label[i]];
      lines.push(`${of.name}: ${duration(row.end[i] - row.begin[i])}`);
      lines.push(`${instant(row.begin[i], 1000)} to ${instant(row.end[i], 1000)}`);
    } else lines.push(`nothing at ${instant(time, pixel)}`);
    if (row.steps) {
      const k = above(row.stepAt, time) - 1;
      if (k >= 0) lines.push(`budget left at ${instant(row.stepAt[k], 1000)}: ${duration(row.stepTo[k])}`);
    }
    for (let k = above(row.openUntil, time - 2 * pixel); k < row.release.length; k++) {
      if (row.release[k] > time || lines.length >= 9) break;
      if (Math.min(row.done[k], TO) < time) continue;
      const finished = `response ${duration(row.done[k] - row.release[k])}`;
      const response = row.done[k] === Infinity ? 'not finished here' : finished;
      const late = row.due[k] <= TO && row.done[k] > row.due[k] ? ', deadline missed' : '';
      const due = duration(row.due[k] - row.release[k]);
      lines.push(`job ${row.number[k]}: ${response}, due after ${due}${late}`);
    }
    tip.textContent = lines.join('\n');
    tip.hidden = false;
    const top = box.offsetTop + py + 16, room = chart.clientWidth - tip.offsetWidth - 4;
    tip.style.left = `${Math.max(0, Math.min(px + 14, room))}px`;
    tip.style.top = `${top}px`;
  };
  box.addEventListener('pointerleave', hideTip);
  box.addEventListener('scroll', () => { hideTip(); redraw(); });

  // ---- Sizes, themes, paper.
  const resize = () => { measure(); redraw(); };
  new ResizeObserver(() => { if (box.clientWidth !== width) resize(); }).observe(box);
  themed.push(() => { readColours(); redraw(); });
  addEventListener('beforeprint', () => { chart.dataset.paper = '1'; readColours(); measure(); draw(); });
  addEventListener('afterprint', () => { delete chart.dataset.paper; readColours(); measure(); redraw(); });

  chart.dataset.state = 'ready';
  layout();
  readColours();
  measure();
  changed();
  firstMiss();
  draw();
})();
