// node serve_openai.mjs TOOL MODEL FOLDER: asks tessera serve with OpenAI's client of npm, which is installed in FOLDER. Prints TAP.
import {spawn, spawnSync} from 'node:child_process';
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const [tool, model, folder] = process.argv.slice(2);
const {default: OpenAI} = await import(pathToFileURL(createRequire(folder + '/').resolve('openai')));
let points = 0, failed = false;
async function point(name, test) {
  let problem = null;
  try { problem = await test(); } catch (error) { problem = String(error.stack ?? error); }
  const good = problem === undefined;
  console.log(`${good ? 'ok' : 'not ok'} ${++points} - ${name}`);
  if (!good) console.log(`# ${JSON.stringify(problem)}`);
  failed ||= !good;
}
async function start(format) {
  const server = spawn(tool, ['serve', model, '--port', '0', '--name', 'stories', '--format', format, '--parallel', '4', '--piece', '64', '--context', '2048'],
    {stdio: ['ignore', 'pipe', 'inherit']});
  const address = await new Promise((resolve, reject) => {
    let said = '';
    server.stdout.on('data', (data) => {
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(said += data);
      if (found) resolve(found[0]);
    });
    server.on('exit', () => reject(new Error('the server has ended')));
  });
  return {server, address, client: new OpenAI({baseURL: address + '/v1', apiKey: 'none', maxRetries: 0})};
}
const {server, address, client} = await start('vicuna');
const ask = {model: 'stories', messages: [{role: 'user', content: 'Tell me a story.'}], temperature: 0, max_tokens: 30};

await point('the list of models', async () => {
  const names = [];
  for await (const one of client.models.list()) names.push(one.id);
  if (names.join() !== 'stories') return names;
});
let text = '';
await point('a chat', async () => {
  const reply = await client.chat.completions.create(ask);
  text = reply.choices[0].message.content;
  if (text.length < 10 || reply.choices[0].finish_reason !== 'length' || reply.usage.completion_tokens !== 30 ||
      reply.usage.prompt_tokens_details.cached_tokens !== 0) return reply;
});
await point('a stream', async () => {
  let all = '', usage = null;
  for await (const event of await client.chat.completions.create({...ask, stream: true, stream_options: {include_usage: true}})) {
    all += event.choices[0]?.delta.content ?? '';
    usage = event.usage ?? usage;
  }
  if (all !== text || usage?.completion_tokens !== 30) return {all, text, usage};
});
await point("the client's own reader of streams", async () => {
  const final = await client.chat.completions.stream(ask).finalContent();
  if (final !== text) return {final, text};
});
await point('several choices with log-probabilities', async () => {
  const reply = await client.chat.completions.create({...ask, temperature: 1, seed: 3, n: 3, logprobs: true, top_logprobs: 4, max_tokens: 8});
  const texts = new Set(reply.choices.map((one) => one.message.content));
  if (texts.size !== 3 || reply.choices.some((one) => one.logprobs.content.length !== 8 || one.logprobs.content[0].top_logprobs.length !== 4)) return reply;
});
await point('a completion', async () => {
  const reply = await client.completions.create({model: 'stories', prompt: 'Once upon a time', max_tokens: 8, temperature: 0, logprobs: 1});
  if (!reply.choices[0].text.startsWith(', there') || reply.choices[0].logprobs.tokens.length !== 8) return reply;
});
await point("a conversation's next turn finds its tokens", async () => {
  const long = {role: 'user', content: 'Tell me a story about a cat, a dog and a bird. '.repeat(6)};
  const first = await client.chat.completions.create({...ask, messages: [long]});
  const second = await client.chat.completions.create({...ask, messages: [long, first.choices[0].message, {role: 'user', content: 'Go on.'}]});
  if (second.usage.prompt_tokens_details.cached_tokens < 64) return [first.usage, second.usage];
});
await point('a client that stops', async () => {
  const stream = await client.chat.completions.create({...ask, stream: true, max_tokens: 400});
  for await (const event of stream) { void event; stream.controller.abort(); break; }
  for (let i = 0; i < 100; i++) {
    if (/requests_cancelled_total 1\n/.test(await (await fetch(address + '/metrics')).text())) return undefined;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return 'the text goes on';
});
for (const [name, change, kind] of [['a wrong value', {temperature: 1000}, OpenAI.BadRequestError], ['another model', {model: 'gpt-4o'}, OpenAI.NotFoundError],
  ['an unknown parameter', {magic: true}, OpenAI.BadRequestError]])
  await point(`the error for ${name}`, async () => {
    try {
      return await client.chat.completions.create({...ask, ...change});
    } catch (error) {
      if (!(error instanceof kind) || error.type !== 'invalid_request_error' || !error.param) return String(error);
    }
  });
// Other servers have formats with tools. Grammars force the calls, since the model knows none.
const tools = [{type: 'function', function: {name: 'get_weather', parameters: {type: 'object', properties: {city: {type: 'string', maxLength: 12}, days: {type: 'integer', minimum: 1, maximum: 9}},
  required: ['city', 'days']}}}, {type: 'function', function: {name: 'now', parameters: {type: 'object', properties: {}, additionalProperties: false}}}];
const call = {...ask, tools, tool_choice: {type: 'function', function: {name: 'get_weather'}}, temperature: 1, seed: 7, max_tokens: 200};
const isCall = (one) => one.function.name === 'get_weather' && one.id.length >= 9 && typeof JSON.parse(one.function.arguments).city === 'string';
for (const format of ['chatml', 'llama3', 'mistral-tekken']) {
  const caller = await start(format);
  await point(`${format}: a call whose arguments are streamed`, async () => {
    const pieces = [];
    let reason = null;
    for await (const event of await caller.client.chat.completions.create({...call, stream: true})) {
      for (const one of event.choices[0].delta.tool_calls ?? []) pieces.push(one);
      reason = event.choices[0].finish_reason ?? reason;
    }
    const text = pieces.map((one) => one.function.arguments).join('');
    if (reason !== 'tool_calls' || pieces.length < 8 || pieces.some((one) => one.index !== 0) || pieces[0].function.name !== 'get_weather' || pieces[0].function.arguments !== '' ||
        pieces.slice(1).some((one) => one.id || one.function.name) || typeof JSON.parse(text).city !== 'string') return pieces;
  });
  if (format === 'chatml') {
    await point('a call of a tool', async () => {
      const choice = (await caller.client.chat.completions.create(call)).choices[0];
      if (choice.finish_reason !== 'tool_calls' || choice.message.content !== null || choice.message.tool_calls.length !== 1 || !isCall(choice.message.tool_calls[0])) return choice;
    });
    await point("the client's helper assembles calls", async () => {
      const runner = caller.client.chat.completions.stream(call);
      const events = [];
      runner.on('tool_calls.function.arguments.delta', (event) => events.push(event));
      const final = await runner.finalChatCompletion(), calls = final.choices[0].message.tool_calls;
      if (final.choices[0].finish_reason !== 'tool_calls' || calls.length !== 1 || !isCall(calls[0]) || events.length < 7 || events.at(-1).arguments !== calls[0].function.arguments)
        return {final, events};
    });
    await point('a conversation with a result', async () => {
      const first = (await caller.client.chat.completions.create(call)).choices[0].message;
      const reply = await caller.client.chat.completions.create({...ask, tools, messages: [...ask.messages, first, {role: 'tool', tool_call_id: first.tool_calls[0].id, content: 'warm'}]});
      if (reply.choices[0].finish_reason !== 'length') return reply;
    });
    await point('a parsed schema', async () => {
      const reply = await caller.client.chat.completions.parse({...ask, max_tokens: 200, response_format: {type: 'json_schema', json_schema: {name: 'pet', strict: true, schema: {type: 'object',
        properties: {kind: {enum: ['cat', 'dog']}}, required: ['kind'], additionalProperties: false}}}});
      if (!['cat', 'dog'].includes(reply.choices[0].message.parsed?.kind)) return reply;
    });
  }
  caller.server.kill('SIGTERM');
}
const metrics = await (await fetch(address + '/metrics')).text(), checked = spawnSync('promtool', ['check', 'metrics'], {input: metrics});
if (!checked.error) await point("Prometheus's promtool has no complaint", async () => { if (checked.status !== 0 || checked.stderr.length > 0) return String(checked.stderr); });
await point('the server ends', () => new Promise((resolve) => {
  server.on('exit', (code) => resolve(code === 0 ? undefined : code));
  server.kill('SIGTERM');
}));
console.log(`1..${points}`);
process.exit(failed ? 1 : 0);
