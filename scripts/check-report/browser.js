'use strict';
// Opens the reports in a directory and exercises them; usage: browser.js CHROMIUM DIRECTORY [SCREENSHOTS]
const fs = require('fs');
const path = require('path');
const { pathToFileURL } = require('url');
const { chromium } = require('playwright-core');

const [executablePath, directory, pictures] = process.argv.slice(2);
const axe = fs.readFileSync(require.resolve('axe-core'), 'utf8');
const problems = [];
const bad = (page, text) => problems.push(`${page}: ${text}`);
const assert = (page, condition, text) => { if (!condition) bad(page, text); };

const ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

// A page whose every complaint counts.
async function open(browser, name, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  const page = await context.newPage();
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) bad(name, `console: ${message.text()}`);
  });
  page.on('pageerror', (error) => bad(name, `exception: ${error.message}`));
  page.on('request', (request) => {
    if (!request.url().startsWith('file:')) bad(name, `asks for ${request.url()}`);
  });
  const start = Date.now();
  await page.goto(pathToFileURL(path.join(directory, name)).href, { timeout: 120000 });
  const chart = await page.$('#chart');
  if (chart && options.javaScriptEnabled !== false) {
    await page.waitForSelector('#chart[data-state=ready]', { state: 'attached', timeout: 120000 });
  }
  return { context, page, chart, loaded_ms: Date.now() - start };
}

const interval = (page) =>
  page.$eval('#chart', ({ dataset }) => [Number(dataset.fromNs), Number(dataset.toNs)]);

// Waits until what was asked for has been drawn.
const drawn = (page) =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

// The timeline opens at the first missed deadline, if there is one; '0' shows everything.
async function opened(name, page) {
  const [from, to] = await interval(page);
  await page.waitForTimeout(250);
  const status = await page.textContent('#chart-status');
  await page.focus('#rows');
  await page.keyboard.press('0');
  const whole = await interval(page);
  const first = /first missed deadline: (.*) at/.exec(status);
  const isPart = to - from < whole[1] - whole[0];
  await page.waitForTimeout(250);
  const missed = /with ([0-9,]+) missed/.exec(await page.textContent('#chart-status'))[1];
  const misses = Number(missed.replace(/,/g, ''));
  assert(name, Boolean(first) === (misses > 0) && (isPart || !first), `it opens with "${status}"`);
}

// The link of the worst job leads to it.
async function blamed(name, page) {
  const link = page.locator('#blame a[data-task]').first();
  const { task, fromNs, toNs } = await link.evaluate(({ dataset }) => ({ ...dataset }));
  await link.click();
  await page.waitForTimeout(250);
  const [from, to] = await interval(page);
  assert(name, from <= Number(fromNs) && to >= Number(toNs), `${task}: the link shows ${from} to ${to}`);
  const row = await page.$eval('#chart', ({ dataset }) => dataset.row);
  assert(name, task.endsWith(`/${row}`), `the link to ${task} chose the row ${row}`);
  const status = await page.textContent('#chart-status');
  assert(name, status.startsWith(`${task}: released at`), `the link says "${status}"`);
}

// Content that is cut off is marked: a box that scrolls has a shadow at its edge, a shortened text its dots.
const cutOff = (page) => page.evaluate(() => {
  const found = [];
  const says = (element) => `${element.tagName} ${element.className} "${element.textContent.slice(0, 60)}"`;
  for (const element of document.querySelectorAll('body *')) {
    const style = getComputedStyle(element);
    if (element.matches('input, .unseen, .unseen *, svg *') || style.overflowX === 'visible') continue;
    const isCut = element.scrollWidth > element.clientWidth + 1 && element.textContent.trim();
    const hasHint = style.textOverflow === 'ellipsis' || style.backgroundAttachment.includes('local');
    if (isCut && !hasHint) found.push(says(element));
  }
  for (const plot of document.querySelectorAll('svg.plot')) {
    const frame = plot.getBoundingClientRect();
    if (frame.width === 0) continue;
    for (const text of plot.querySelectorAll('text')) {
      const { left, right } = text.getBoundingClientRect();
      if (left < frame.left - 1 || right > frame.right + 1) found.push(`text "${text.textContent}"`);
    }
  }
  return found;
});

async function exercise(name, page) {
  await page.focus('#rows');
  await page.keyboard.press('0');
  const whole = await interval(page);
  const length = whole[1] - whole[0];
  await page.focus('#rows');
  await page.keyboard.press('+');
  await page.keyboard.press('+');
  let [from, to] = await interval(page);
  const left = (to - from) / length;
  assert(name, Math.abs(left - 0.25) < 1e-6, `two zooms leave ${left} of the interval`);
  await page.keyboard.press('ArrowRight');
  const moved = await interval(page);
  assert(name, moved[0] > from, 'the right arrow does not move');
  await page.keyboard.press('Home');
  [from, to] = await interval(page);
  assert(name, from === whole[0], 'Home does not go to the begin');
  await page.keyboard.press('End');
  [from, to] = await interval(page);
  assert(name, to === whole[1], 'End does not go to the end');
  await page.keyboard.press('-');
  // A missed deadline has chosen its row already.
  const chosen = () => page.$eval('#chart', ({ dataset }) => dataset.row);
  for (let rows = 0; rows < 200 && await chosen() && await chosen() !== 'cpu 0'; rows++) {
    await page.keyboard.press('ArrowUp');
  }
  if (!await chosen()) await page.keyboard.press('ArrowDown');
  await page.keyboard.press('.');
  const row = await chosen();
  assert(name, row.startsWith('cpu '), `the first row is "${row}"`);
  await page.waitForTimeout(250);
  const status = await page.textContent('#chart-status');
  assert(name, status.includes(row), `the status says "${status}"`);
  await page.keyboard.press('0');
  assert(name, (await interval(page)).join() === whole.join(), '0 does not show everything');
  // By mouse and by typing.
  await page.fill('#chart-from', '20 ms');
  await page.fill('#chart-to', '120 ms');
  await page.press('#chart-to', 'Enter');
  assert(name, (await interval(page)).join() === '20000000,120000000', `typed: ${await interval(page)}`);
  await page.fill('#chart-to', 'nonsense');
  await page.press('#chart-to', 'Enter');
  const invalid = await page.getAttribute('#chart-to', 'aria-invalid');
  assert(name, invalid === 'true', 'nonsense is taken for a time');
  await page.click('[data-do=out]');
  const after = await interval(page);
  assert(name, after[1] - after[0] === 200000000, 'the button does not zoom out');
  const table = page.locator('#timeline > details');
  // Closed, the table has the numbers of the whole run. The browser tells the page a little later that it was
  // opened.
  const numbers = () => table.locator('tbody').textContent();
  const closed = await numbers();
  await table.locator('summary').click();
  let before = closed;
  for (let tries = 0; tries < 50 && before === closed; tries++) {
    await page.waitForTimeout(20);
    before = await numbers();
  }
  assert(name, before !== closed, 'the table that was opened does not show the interval');
  await page.click('[data-do=all]');
  const rows = await numbers();
  assert(name, before !== rows, 'the table does not follow the interval');
  await table.locator('summary').click();
  const box = await page.locator('#rows-canvas').boundingBox();
  await page.locator('#rows').scrollIntoViewIfNeeded();
  await page.locator('#rows').hover({ position: { x: box.width / 2, y: 70 } });
  assert(name, await page.isVisible('#tip'), 'hovering shows nothing');
  const ink = await page.$eval('#rows-canvas', (canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  assert(name, ink > 20, `the canvas has ${ink} colours`);
}

async function accessible(name, page) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() =>
    window.axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
    }));
  for (const { id, help, nodes: [node] } of violations) {
    bad(name, `axe: ${id}: ${help}: ${node.html.slice(0, 200)} ${node.failureSummary || ''}`);
  }
  return passes.length;
}

async function measure(browser) {
  const name = 'million.html';
  const { context, page, loaded_ms } = await open(browser, name);
  const items = await page.$eval('#timeline', (section) => /([0-9,]+) items/.exec(section.textContent)[1]);
  const steps = await page.evaluate(async () => {
    const box = document.getElementById('rows');
    box.focus();
    const times = [];
    const keys = ['+', '+', '+', 'ArrowRight', '+', '+', '-', '+', '+', '+', 'ArrowLeft', ...'--------'];
    for (const key of keys) {
      const start = performance.now();
      box.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
      await new Promise((done) => requestAnimationFrame(done));
      times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b);
  });
  const [from, to] = await interval(page);
  assert(name, to > from, 'zooming broke the interval');
  const size = fs.statSync(path.join(directory, name)).size / 1e6;
  const [median, most] = [steps[steps.length >> 1], steps[steps.length - 1]].map((step) => step.toFixed(0));
  const opened = `${items} items, ${size.toFixed(1)} MB: opened in ${loaded_ms} ms`;
  console.log(`  ${name}: ${opened}; a step of zoom or ` +
    `move takes ${median} ms (median), ${most} ms at most, until the next frame`);
  assert(name, Number(items.replace(/,/g, '')) >= 900000, `only ${items} items`);
  await context.close();
}

// The pictures of docs/report.md, and a report on paper.
async function photograph(browser) {
  fs.mkdirSync(pictures, { recursive: true });
  const shoot = async (file, name, width, colorScheme, what) => {
    const options = { viewport: { width, height: 900 }, colorScheme, reducedMotion: 'reduce' };
    const { context, page } = await open(browser, `${name}.html`, options);
    // What is sticky would be in the middle of the picture.
    await page.addStyleTag({ content: 'nav { position: static !important; }' });
    await what(page, path.join(pictures, file));
    await context.close();
  };
  const top = (width, height) => (page, file) =>
    page.screenshot({ path: file, fullPage: true, clip: { x: 0, y: 0, width, height } });
  const section = (id) => (page, file) => page.locator(`#${id}`).screenshot({ path: file });
  const interval = (from, to) => async (page, file) => {
    await page.fill('#chart-from', from);
    await page.fill('#chart-to', to);
    await page.press('#chart-to', 'Enter');
    await page.$eval('#chart-to', (field) => field.blur());
    await page.waitForTimeout(250);
    await drawn(page);
    await page.locator('#chart').screenshot({ path: file });
  };
  await shoot('report-wide-light.png', 'five', 1400, 'light', top(1400, 1500));
  await shoot('report-wide-dark.png', 'misbehaving', 1400, 'dark', top(1400, 1500));
  await shoot('report-packets-light.png', 'network', 1400, 'light', section('packets'));
  await shoot('report-timeline-dark.png', 'late', 1400, 'dark', interval('150 ms', '300 ms'));
  await shoot('report-narrow-light.png', 'network', 420, 'light', top(420, 1500));
  await shoot('report-narrow-dark.png', 'late', 420, 'dark', top(420, 1500));
  // Whole pages, to look at.
  const whole = (page, file) => page.screenshot({ path: file, fullPage: true });
  for (const name of ['late', 'misbehaving', 'network']) {
    await shoot(`whole-${name}-wide-light.png`, name, 1400, 'light', whole);
    await shoot(`whole-${name}-narrow-dark.png`, name, 420, 'dark', whole);
  }
  const { context, page } = await open(browser, 'late.html', { colorScheme: 'dark' });
  const margin = { top: '15mm', bottom: '15mm', left: '15mm', right: '15mm' };
  await page.pdf({ path: path.join(pictures, 'late.pdf'), format: 'A4', margin });
  await context.close();
}

(async () => {
  const browser = await chromium.launch({ executablePath, headless: true, args: ARGUMENTS });
  const isPage = (name) => name.endsWith('.html') && name !== 'million.html';
  for (const name of fs.readdirSync(directory).filter(isPage).sort()) {
    for (const [kind, options] of [
      ['light', { colorScheme: 'light' }],
      ['dark', { colorScheme: 'dark', reducedMotion: 'reduce' }],
      ['narrow', { viewport: { width: 420, height: 800 } }],
    ]) {
      const { context, page, chart } = await open(browser, name, options);
      const passed = await accessible(`${name} (${kind})`, page);
      (await cutOff(page)).forEach((what) => bad(`${name} (${kind})`, `cut off without a hint: ${what}`));
      if (chart && kind === 'light') {
        await opened(name, page);
        await exercise(name, page);
        if (await page.$('#blame a[data-task]')) await blamed(name, page);
      }
      if (chart && name === 'late.html') {
        await page.click('[data-do=miss-after]');
        await page.waitForTimeout(250);
        const status = await page.textContent('#chart-status');
        assert(name, /missed at/.test(status), 'no missed deadline is found');
      }
      await page.click('#theme');
      const theme = await page.getAttribute('html', 'data-theme');
      assert(name, theme === (kind === 'dark' ? 'light' : 'dark'), `the button chose ${theme}`);
      const wide = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = document.documentElement;
        return scrollWidth - clientWidth;
      });
      assert(`${name} (${kind})`, wide <= 0, `the page is ${wide} px wider than the window`);
      console.log(`  ${name} (${kind}): ${passed} rules of axe hold`);
      await context.close();
    }
    const { context, page } = await open(browser, name, { javaScriptEnabled: false });
    assert(name, await page.isVisible('.banner .lead'), 'without JavaScript there is no verdict');
    await context.close();
  }
  await measure(browser);
  if (pictures) await photograph(browser);
  await browser.close();
  problems.forEach((problem) => console.error(`FAILED ${problem}`));
  process.exit(problems.length ? 1 : 0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
