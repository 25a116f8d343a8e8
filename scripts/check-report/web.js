'use strict';
// Opens the page of `punctual status --web`; usage: web.js CHROMIUM URL SERVICE [SCREENSHOTS]
//   SERVICE is the process of `punctual serve`, which is stopped for a while.
// The service has the VMs that web.sh starts: relay-feeder and web-7, which compete for a processor, one that
// is called <script>..., and one with a name of 10,000 letters. It may have others that run on this machine.
const fs = require('fs');
const path = require('path');
const { chromium } = require('playwright-core');

const [executablePath, url, service, pictures] = process.argv.slice(2);
const axe = fs.readFileSync(require.resolve('axe-core'), 'utf8');
const problems = [];
const assert = (what, condition, text) => { if (!condition) problems.push(`${what}: ${text}`); };

const ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

// A page whose every complaint counts, once it shows what the service said.
async function open(browser, kind, options) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  const page = await context.newPage();
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) problems.push(`${kind}: console: ${message.text()}`);
  });
  page.on('pageerror', (error) => problems.push(`${kind}: exception: ${error.message}`));
  page.on('dialog', (dialog) => { problems.push(`${kind}: a name was executed`); dialog.dismiss(); });
  page.on('request', (request) => {
    if (!request.url().startsWith(url)) problems.push(`${kind}: asks for ${request.url()}`);
  });
  await page.goto(url);
  await page.locator('#actors tr').nth(3).waitFor();
  await page.locator('#processors tr').first().waitFor();
  return { context, page };
}

async function fits(kind, page) {
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }));
  for (const { id, help, nodes: [node] } of violations) {
    problems.push(`${kind}: axe: ${id}: ${help}: ${node.html.slice(0, 200)} ${node.failureSummary || ''}`);
  }
  const wide = await page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    return scrollWidth - clientWidth;
  });
  assert(kind, wide <= 0, `the page is ${wide} px wider than the window`);
  console.log(`  ${kind}: ${passes.length} rules of axe hold`);
}

// What the page says of a VM.
const row = (page, name) => page.locator('#actors tr').filter({ has: page.getByText(name, { exact: true }) });

async function shows(page) {
  const kind = 'what it shows';
  const hostile = '<script>document.title = "bad"; alert(1)</script>';
  assert(kind, await row(page, hostile).count() === 1, 'the VM with markup as its name is not there as text');
  assert(kind, await page.locator('script').count() === 1, 'there is a script that is not the page\'s');
  const long = page.locator('#actors .name').filter({ hasText: /^x+/ });
  const { width, height } = await long.boundingBox();
  assert(kind, width < 700 && height < 60, `the long name takes ${width} by ${height} px`);
  const relay = row(page, 'relay-feeder');
  await page.waitForFunction(() => /preempted-by-unit|other-thread/.test(
    document.getElementById('actors').textContent), null, { timeout: 5000 });
  assert(kind, /relay, rt/.test(await relay.textContent()), `relay-feeder: ${await relay.textContent()}`);
  const uses = await page.locator('#processors ul').first().textContent();
  assert(kind, /relay-feeder|web-7/.test(uses) && /idle/.test(uses), `who had the processor: ${uses}`);
  const ink = await page.$eval('#processors canvas', (canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  });
  assert(kind, ink >= 3, `the strip has ${ink} colours`);
}

// What is opened by keyboard stays open and has the focus while the page is updated; Pause stops updates.
async function keys(page) {
  const kind = 'keyboard';
  const summary = page.locator('#worst summary').first();
  if (await summary.count()) {
    await summary.focus();
    await page.keyboard.press('Enter');
    const opened = page.locator('#worst details[open]');
    const before = await opened.getAttribute('data-key');
    const updated = await page.textContent('#updated');
    await page.waitForFunction((text) => document.getElementById('updated').textContent !== text, updated);
    const now = await page.evaluate(() => document.activeElement.parentElement.dataset.key);
    assert(kind, await opened.count() === 1 && now === before, 'an update closed what was opened');
  }
  await page.focus('#pause');
  await page.keyboard.press('Enter');
  const paused = await page.textContent('#updated');
  assert(kind, /^Paused/.test(paused), `Pause says "${paused}"`);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('updated').textContent.startsWith('Updated'));
}

const UNITS_NS = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 };

// A click on a head sorts, a second one the other way round, a third one not at all; the filter leaves the
// VMs whose names have the text. The address keeps both.
async function arranges(page) {
  const kind = 'sorting and filter';
  const texts = (column) => page.$$eval('#actors tr', (rows, at) =>
    rows.map(({ cells }) => cells[at].firstChild.textContent), column);
  const head = (column) => page.locator(`[data-sort=${column}]`);
  const sorted = async (column) => page.locator('th', { has: head(column) }).getAttribute('aria-sort');
  const asGiven = (await texts(0)).join();
  const byName = (await texts(0)).sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  assert(kind, byName.join() !== asGiven, 'the service has the VMs in order of name: nothing is tested');
  await head('name').focus();
  await page.keyboard.press('Enter');
  assert(kind, (await texts(0)).join() === byName.join(), `by name: ${await texts(0)}`);
  assert(kind, await sorted('name') === 'ascending', `aria-sort is ${await sorted('name')}`);
  await head('name').click();
  assert(kind, (await texts(0)).join() === byName.reverse().join(), `from the last: ${await texts(0)}`);
  await head('name').click();
  assert(kind, (await texts(0)).join() === asGiven && await sorted('name') === null, 'a third click sorts');
  await head('wakeup').click();
  const wakeups = (await texts(7)).filter((text) => text !== '-').map((text) => text.split('\u00a0'));
  const times_ns = wakeups.map(([number, unit]) => number * UNITS_NS[unit]);
  assert(kind, times_ns.length >= 2, `wake-ups are known of ${times_ns.length} VMs`);
  assert(kind, times_ns.every((time, at) => !at || time <= times_ns[at - 1]), `longest first: ${wakeups}`);
  await page.fill('#filter', 'RELAY-feed');
  assert(kind, (await texts(0)).join() === 'relay-feeder', `the filter leaves ${await texts(0)}`);
  assert(kind, /^1 of \d+ shown$/.test(await page.textContent('#shown')), await page.textContent('#shown'));
  const address = page.url();
  assert(kind, address === `${url}?sort=-wakeup&name=RELAY-feed`, `the address is ${address}`);
  await page.reload();
  await page.locator('#actors tr').first().waitFor();
  assert(kind, (await texts(0)).join() === 'relay-feeder', `after a reload there is ${await texts(0)}`);
  assert(kind, await sorted('wakeup') === 'descending', 'a reload forgets what sorts');
  await page.fill('#filter', '');
  assert(kind, page.url() === `${url}?sort=-wakeup`, `without the filter the address is ${page.url()}`);
  await head('wakeup').click();
  await head('wakeup').click();
  assert(kind, page.url() === url, `in the end the address is ${page.url()}`);
}

// A service that does not answer does not look like an idle host, and the page goes on when it does again.
async function reconnects(page) {
  const kind = 'a service that does not answer';
  process.kill(Number(service), 'SIGSTOP');
  try {
    await page.waitForFunction(() => /Not connected since \d\d:\d\d:\d\d/.test(
      document.getElementById('lead').textContent), null, { timeout: 8000 });
    assert(kind, await page.locator('#data.stale').count() === 1, 'the data looks fresh');
    assert(kind, await page.locator('#empty:visible').count() === 0, 'the host looks idle');
  } finally {
    process.kill(Number(service), 'SIGCONT');
  }
  await page.waitForFunction(() => / VMs on /.test(document.getElementById('lead').textContent), null,
    { timeout: 15000 });
}

// The picture of docs/service.md, and a narrow one to look at.
async function photograph(browser) {
  fs.mkdirSync(pictures, { recursive: true });
  for (const [name, width, colorScheme] of [
    ['web-wide-light', 1400, 'light'], ['web-narrow-dark', 420, 'dark'],
  ]) {
    const { context, page } = await open(browser, name, { viewport: { width, height: 900 }, colorScheme });
    await page.locator('#worst summary').first().waitFor();
    await page.waitForTimeout(1000);
    const clip = { x: 0, y: 0, width, height: width > 1000 ? 1000 : 1500 };
    await page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true, clip });
    await context.close();
  }
}

(async () => {
  const browser = await chromium.launch({ executablePath, headless: true, args: ARGUMENTS });
  for (const [kind, options] of pictures ? [] : [
    ['wide, light', { viewport: { width: 1920, height: 1000 } }],
    ['narrow, dark', { viewport: { width: 360, height: 800 }, colorScheme: 'dark' }],
  ]) {
    const { context, page } = await open(browser, kind, options);
    await fits(kind, page);
    if (kind === 'wide, light') {
      await shows(page);
      await keys(page);
      await arranges(page);
      await reconnects(page);
    }
    await context.close();
  }
  if (pictures) await photograph(browser);
  await browser.close();
  problems.forEach((problem) => console.error(`FAILED ${problem}`));
  process.exit(problems.length ? 1 : 0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
