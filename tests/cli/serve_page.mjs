// node serve_page.mjs TOOL MODEL CHROMIUM FOLDER: drives the page of tessera serve in a browser, by Chromium's debugging pipe. Prints TAP.
// Pictures of the page go to FOLDER.
import {spawn} from 'node:child_process';
import {mkdirSync, writeFileSync} from 'node:fs';

const [tool, model, chromium, folder] = process.argv.slice(2);
let points = 0, failed = false;
function point(good, name, detail) {
  console.log(`${good ? 'ok' : 'not ok'} ${++points} - ${name}`);
  if (!good) console.log(`# ${JSON.stringify(detail)}`);
  failed ||= !good;
}

// The server, with an adapter of all queries ----------------------------------------------------

const adapter = `${folder}/adapter`, tensors = {}, half = 64 * 2;
for (let i = 0; i < 10; i++) {
  tensors[`base_model.model.model.layers.${i >> 1}.self_attn.q_proj.lora_${'AB'[i & 1]}.weight`] =
    {dtype: 'F32', shape: i & 1 ? [64, 2] : [2, 64], data_offsets: [4 * half * i, 4 * half * (i + 1)]};
}
const header = Buffer.from(JSON.stringify(tensors)), length = Buffer.alloc(8);
length.writeBigUInt64LE(BigInt(header.length));
const values = Float32Array.from({length: 10 * half}, (_, i) => (i * 37 % 101 - 50) * 0.01);
mkdirSync(adapter, {recursive: true});
writeFileSync(adapter + '/adapter_config.json', '{"peft_type": "LORA", "r": 2, "lora_alpha": 4}');
writeFileSync(adapter + '/adapter_model.safetensors', Buffer.concat([length, header, Buffer.from(values.buffer)]));

const server = spawn(tool, ['serve', model, '--port', '0', '--format', 'vicuna', '--parallel', '2', '--name', 'stories', '--lora', 'other=' + adapter], {stdio: ['ignore', 'pipe', 'inherit']});
const address = await new Promise((resolve, reject) => {
  let said = '';
  server.stdout.on('data', (data) => {
    said += data;
    const found = /http:\/\/127\.0\.0\.1:\d+/.exec(said);
    if (found) resolve(found[0]);
  });
  server.on('exit', () => reject(new Error('the server has ended')));
});

// The browser -----------------------------------------------------------------------------------

const browser = spawn(chromium, ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe',
  `--user-data-dir=${folder}/profile`, 'about:blank'], {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
const waiting = new Map();
const problems = []; // messages of the console, exceptions, and requests to other addresses
let last = 0, heard = '';
browser.stdio[4].on('data', (data) => {
  heard += data;
  for (let end; (end = heard.indexOf('\0')) >= 0; heard = heard.slice(end + 1)) {
    const message = JSON.parse(heard.slice(0, end));
    if (message.id) waiting.get(message.id)?.(message);
    if (message.method === 'Runtime.exceptionThrown') problems.push(message.params.exceptionDetails.text);
    if (message.method === 'Log.entryAdded' && message.params.entry.level === 'error') problems.push(message.params.entry.text);
    if (message.method === 'Network.requestWillBeSent' && !/^(data:|about:)/.test(message.params.request.url) &&
        !message.params.request.url.startsWith(address)) problems.push('a request to ' + message.params.request.url);
  }
});
function call(method, params = {}, sessionId = undefined) {
  const id = ++last;
  browser.stdio[3].write(JSON.stringify({id, method, params, sessionId}) + '\0');
  return new Promise((resolve, reject) => waiting.set(id, (message) => message.error ? reject(new Error(`${method}: ${message.error.message}`)) : resolve(message.result)));
}
const {targetInfos} = await call('Target.getTargets');
const {sessionId} = await call('Target.attachToTarget', {targetId: targetInfos.find((one) => one.type === 'page').targetId, flatten: true});
const page = (method, params) => call(method, params, sessionId);
for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await page(domain + '.enable');
async function evaluate(expression) {
  const {result, exceptionDetails} = await page('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}
async function until(expression, seconds = 60) {
  for (let i = 0; i < seconds * 20; i++) {
    if (await evaluate(expression).catch(() => false)) return true;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return false;
}
async function open() {
  await page('Page.navigate', {url: address + '/'});
  await until(`document.readyState === 'complete' && document.getElementById('state').textContent !== ''`);
}
async function say(text) {
  await evaluate(`$('text').focus()`);
  await page('Input.insertText', {text});
  await page('Input.dispatchKeyEvent', {type: 'keyDown', key: 'Enter', code: 'Enter', windowsVirtualKeyCode: 13, text: '\r'});
  await page('Input.dispatchKeyEvent', {type: 'keyUp', key: 'Enter', code: 'Enter', windowsVirtualKeyCode: 13});
}
async function picture(name) {
  const {data} = await page('Page.captureScreenshot', {format: 'png'});
  writeFileSync(`${folder}/${name}.png`, Buffer.from(data, 'base64'));
}
const set = (name, value) => `$('${name}').value = '${value}'; $('${name}').onchange();`;
const replies = `[...document.querySelectorAll('.assistant')]`;
const idle = `$('send').textContent === 'Send'`;

// The page --------------------------------------------------------------------------------------

await page('Emulation.setDeviceMetricsOverride', {width: 1100, height: 760, deviceScaleFactor: 1, mobile: false});
await open();
point(await until(`/^stories/.test($('talk').textContent)`), 'it shows the name of the model');
await picture('empty');
point(/^1 rank$/.test(await evaluate(`$('state').textContent`)), 'the page shows the state', await evaluate(`$('state').textContent`));
await evaluate(set('temperature', '0') + set('max_tokens', '60'));
await say('Tell me a story.');
point(await until(`${replies}.length === 1 && ${replies}[0].textContent.length > 5`), 'a reply arrives');
point(await until(idle) && await evaluate(`/60 tokens, [\\d.]+ per second/.test(${replies}[0].textContent)`), 'it ends, with its speed', await evaluate(`${replies}[0].textContent`));
const first = await evaluate(`conversation().messages[1].content`);
await picture('wide');
await evaluate(`$('again').click()`);
point(await until(`!(${idle})`, 5) && await until(idle) && await evaluate(`conversation().messages[1].content`) === first && await evaluate(`${replies}.length`) === 1,
  'regenerating gives the same text without temperature');
point(await until(`[...$('model').options].map((one) => one.value).join() === 'stories,other' && !$('model-part').hidden && $('model').value === 'stories'`),
  'the page lists the model and its adapter');
await evaluate(set('model', 'other') + `$('again').click()`);
point(await until(`!(${idle})`, 5) && await until(idle) && await evaluate(`conversation().messages[1].content`) !== first, 'the adapter that is chosen answers');
await evaluate(set('max_tokens', '400'));
await say('And another one.');
await until(`${replies}.length === 2 && ${replies}[1].textContent.length > 20`);
await page('Input.dispatchKeyEvent', {type: 'keyDown', key: 'Escape', code: 'Escape', windowsVirtualKeyCode: 27});
point(await until(`${idle} && ${replies}[1].textContent.includes('Stopped.')`), 'Escape stops a reply');
const texts = await evaluate(`conversation().messages.map((one) => one.content)`);
await open();
point(JSON.stringify(await evaluate(`conversation().messages.map((one) => one.content)`)) === JSON.stringify(texts) && await evaluate(`${replies}.length`) === 2,
  'the conversation is there after reloading');
point(await until(`$('model').value === 'other'`), 'and so is the adapter');

const hostile = '# Title\n\n<script>window.harm = 1</script><img src=x onerror="window.harm = 1">\n\n[a](javascript:window.harm=1) [b](data:text/html,x) ' +
  '[c](https://example.com/?a=1&b="><script>) **bold <b onmouseover=harm()>x</b>**\n\n```html\n<iframe srcdoc="<script>parent.harm = 1</script>"></iframe>\n```\n\n' +
  '| a | b |\n| --- | --- |\n| <svg onload="window.harm=1"> | `c` |\n\n- one\n- two\n\n> <object data="x"></object>';
await evaluate(`conversations.unshift({title: '<img src=x onerror="window.harm = 1">', messages: [{role: 'user', content: '<script>window.harm = 1</script>'},
  {role: 'assistant', content: ${JSON.stringify(hostile)}, reasoning: '<img src=x onerror="window.harm = 1">'}]}); current = 0; keep(); show();`);
await evaluate(`[...document.querySelectorAll('a')].forEach((a) => a.dispatchEvent(new MouseEvent('mouseover')))`);
const made = await evaluate(`({harm: window.harm ?? 0, wrong: document.querySelectorAll('#talk script, #talk img, #talk iframe, #talk svg, #talk object, #talk [onmouseover], #list img').length,
  links: [...document.querySelectorAll('#talk a')].map((a) => a.protocol), code: document.querySelectorAll('#talk pre code').length, cells: document.querySelectorAll('#talk td').length,
  items: document.querySelectorAll('#talk li').length})`);
point(made.harm === 0 && made.wrong === 0 && JSON.stringify(made.links) === '["https:"]' && made.code === 1 && made.cells === 2 && made.items === 2,
  'a hostile reply runs nothing, and is shown', made);
await picture('hostile');
point(await evaluate(`(() => { const box = document.createElement('div'); markdown(box, '1. a\\n   - b\\n     * c\\n   - d\\n2. e\\n\\n---\\n- f\\n1. g'); return box.innerHTML; })()`) ===
  '<ol start="1"><li>a<ul><li>b<ul><li>c</li></ul></li><li>d</li></ul></li><li>e</li></ol><hr><ul><li>f</li></ul><ol start="1"><li>g</li></ol>', 'lists may be in lists');
point(await evaluate(`(() => { const box = document.createElement('div'); markdown(box, Array.from({length: 3000}, (_, i) => ' '.repeat(2 * i) + '- x').join('\\n')); return box.querySelectorAll('ul').length; })()`) === 20,
  'and have a limit');
point(await evaluate(`(() => { const box = document.createElement('div'); markdown(box, '>'.repeat(30000)); return box.querySelectorAll('blockquote').length; })()`) === 20,
  'quotes in quotes have a limit');

await evaluate(`select(1); $('change').click()`);
point(await evaluate(`$('text').value`) === 'And another one.' && await evaluate(`conversation().messages.length`) === 2, 'the last message can be changed', await evaluate(`$('text').value`));
await evaluate(`$('text').value = ''; select(0)`);
await evaluate(`$('theme').click()`);
await picture('other-theme');
await evaluate(`$('ranks-part').open = true`);
point(await until(`/^0: .*100 % of the model: [\\d.]+ MiB of weights, [\\d.]+ MiB in use/.test($('ranks').textContent)`), 'the page lists the ranks', await evaluate(`$('ranks').textContent`));
await page('Emulation.setDeviceMetricsOverride', {width: 390, height: 800, deviceScaleFactor: 2, mobile: true});
const narrow = await evaluate(`({width: document.documentElement.scrollWidth, menu: getComputedStyle($('menu')).display, aside: getComputedStyle(document.querySelector('aside')).display})`);
point(narrow.width <= 390 && narrow.menu !== 'none' && narrow.aside === 'none', 'it fits a phone', narrow);
await picture('phone');
await evaluate(`$('menu').click()`);
await picture('phone-menu');
point(await evaluate(`getComputedStyle(document.querySelector('aside')).display`) === 'flex', 'the menu opens');
point(problems.length === 0, 'no error, and no request to another address', problems);

// A lost server is said.
server.kill('SIGTERM');
point(await until(`$('state').textContent === 'The server does not answer.'`, 30), 'the page says that the server has ended');
browser.kill();
console.log(`1..${points}`);
process.exit(failed ? 1 : 0);
