/* The bodies of requests: checks all members, and encodes messages and prompts. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

#define MOST_STOPS 16
#define MOST_CHOICES 128
#define MOST_BIASES 1024
/* Log-probabilities that all texts of a request may have for each token. */
#define MOST_LOG_PROBABILITIES 256

/* Refuses a request with the sentence of the library's last error. */
static bool refuse_by_library(serve_problem *problem, unsigned status, const char *parameter)
{
    serve_refuse(problem, status, parameter, "%s", tsr_last_error());
    return false;
}

static json_t *read_object(const char *body, size_t size, serve_problem *problem)
{
    json_error_t error;
    json_t *object = json_loadb(body, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (object == NULL)
        serve_refuse(problem, 400, "", "the body is not JSON: line %d, column %d: %s", error.line,
                     error.column, error.text);
    if (object != NULL && !json_is_object(object)) {
        serve_refuse(problem, 400, "", "the body is not a JSON object");
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Parameters ----------------------------------------------------------------------------------- */

typedef enum kind {
    READ,     /* another function reads the value */
    REAL,     /* a number in [low, high] */
    INTEGER,  /* an integer in [low, high] */
    FLAG,     /* true or false */
    HARMLESS, /* changes no text: ignored */
    MISSING   /* would change the text, but is not supported: only values that mean nothing */
} kind;

typedef enum where { CHAT = 1, COMPLETION = 2, BOTH = 3 } where;

typedef struct parameter {
    const char *name;
    where where;
    kind kind;
    double low, high;
    size_t offset; /* of the value in `values` */
} parameter;

/* The values of numbers and flags. */
typedef struct values {
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t max_tokens, max_completion_tokens, top_k, seed, n, log_probabilities, top_logprobs;
    bool stream, has_seed, logprobs;
} values;

#define VALUE(member) offsetof(values, member)
static const parameter parameters[] = {
    {"model", BOTH, READ, 0, 0, 0},
    {"lora", BOTH, READ, 0, 0, 0},
    {"messages", CHAT, READ, 0, 0, 0},
    {"prompt", COMPLETION, READ, 0, 0, 0},
    {"stop", BOTH, READ, 0, 0, 0},
    {"stream_options", BOTH, READ, 0, 0, 0},
    {"stream", BOTH, FLAG, 0, 0, VALUE(stream)},
    {"max_tokens", BOTH, INTEGER, 1, 1 << 30, VALUE(max_tokens)},
    {"max_completion_tokens", CHAT, INTEGER, 1, 1 << 30, VALUE(max_completion_tokens)},
    {"temperature", BOTH, REAL, 0, 100, VALUE(temperature)},
    {"top_p", BOTH, REAL, 0, 1, VALUE(top_p)},
    {"top_k", BOTH, INTEGER, 0, 1 << 30, VALUE(top_k)},
    {"min_p", BOTH, REAL, 0, 1, VALUE(min_p)},
    {"repetition_penalty", BOTH, REAL, 0.001, 1000, VALUE(repetition_penalty)},
    {"presence_penalty", BOTH, REAL, -100, 100, VALUE(presence_penalty)},
    {"frequency_penalty", BOTH, REAL, -100, 100, VALUE(frequency_penalty)},
    {"logit_bias", BOTH, READ, 0, 0, 0},
    {"n", BOTH, INTEGER, 1, MOST_CHOICES, VALUE(n)},
    {"logprobs", CHAT, FLAG, 0, 0, VALUE(logprobs)},
    {"top_logprobs", CHAT, INTEGER, 0, TSR_MAX_TOP_LOG_PROBABILITIES, VALUE(top_logprobs)},
    {"logprobs", COMPLETION, INTEGER, 0, TSR_MAX_TOP_LOG_PROBABILITIES, VALUE(log_probabilities)},
    {"seed", BOTH, INTEGER, -9e15, 9e15, VALUE(seed)},
    {"user", BOTH, HARMLESS, 0, 0, 0},
    {"metadata", BOTH, HARMLESS, 0, 0, 0},
    {"store", BOTH, HARMLESS, 0, 0, 0},
    {"service_tier", BOTH, HARMLESS, 0, 0, 0},
    {"safety_identifier", BOTH, HARMLESS, 0, 0, 0},
    {"prompt_cache_key", BOTH, HARMLESS, 0, 0, 0},
    {"parallel_tool_calls", BOTH, HARMLESS, 0, 0, 0},
    {"best_of", COMPLETION, MISSING, 0, 1, 0},
    {"echo", COMPLETION, MISSING, 0, 0, 0},
    {"suffix", COMPLETION, MISSING, 0, 0, 0},
    {"tools", CHAT, READ, 0, 0, 0},
    {"tool_choice", CHAT, READ, 0, 0, 0},
    {"response_format", BOTH, READ, 0, 0, 0},
    {"grammar", BOTH, READ, 0, 0, 0},
    {"reasoning_effort", CHAT, READ, 0, 0, 0},
    {"chat_template_kwargs", CHAT, READ, 0, 0, 0},
};

/* Returns whether a value means the same as no value, for a parameter that is not supported. */
static bool means_nothing(const parameter *p, const json_t *value)
{
    const json_t *type = json_object_get(value, "type");
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) &&
            (json_number_value(value) == 0 || json_number_value(value) == p->high)) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_string(value) && (strcmp(json_string_value(value), "") == 0 ||
                                      strcmp(json_string_value(value), "none") == 0)) ||
           (json_is_string(type) && strcmp(json_string_value(type), "text") == 0);
}

static bool refuse_value(const parameter *p, const json_t *value, const char *wanted,
                         serve_problem *problem)
{
    char *given = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    serve_refuse(problem, 400, p->name, "%s is %.60s; it must be %s", p->name,
                 given != NULL ? given : "wrong", wanted);
    free(given);
    return false;
}

static bool read_number(const parameter *p, const json_t *value, values *out,
                        serve_problem *problem)
{
    const bool fits = p->kind == REAL ? json_is_number(value) : json_is_integer(value);
    const double number = json_number_value(value);
    if (!fits || !(number >= p->low && number <= p->high)) {
        char wanted[80];
        snprintf(wanted, sizeof wanted, "%s from %.16g to %.16g",
                 p->kind == REAL ? "a number" : "an integer", p->low, p->high);
        return refuse_value(p, value, wanted, problem);
    }
    char *at = (char *)out + p->offset;
    if (p->kind == REAL)
        memcpy(at, &number, sizeof number);
    else
        memcpy(at, &(int64_t){json_integer_value(value)}, sizeof(int64_t));
    return true;
}

static bool read_parameter(const parameter *p, const json_t *value, values *out,
                           serve_problem *problem)
{
    if (p->kind == MISSING && !means_nothing(p, value)) {
        serve_refuse(problem, 400, p->name, "%s is not supported", p->name);
        return false;
    }
    if (p->kind == FLAG && !json_is_boolean(value) && !json_is_null(value))
        return refuse_value(p, value, "true or false", problem);
    if (p->kind == FLAG)
        *((bool *)((char *)out + p->offset)) = json_is_true(value);
    if ((p->kind == REAL || p->kind == INTEGER) && !json_is_null(value))
        return read_number(p, value, out, problem);
    return true;
}

static bool read_parameters(json_t *body, bool chat, values *out, serve_problem *problem)
{
    const char *name;
    json_t *value;
    json_object_foreach(body, name, value)
    {
        const parameter *found = NULL;
        for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
            if (strcmp(parameters[i].name, name) == 0 &&
                (parameters[i].where & (chat ? CHAT : COMPLETION)) != 0)
                found = &parameters[i];
        if (found == NULL) {
            serve_refuse(problem, 400, name, "there is no parameter '%.60s'", name);
            return false;
        }
        if (!read_parameter(found, value, out, problem))
            return false;
    }
    const json_t *seed = json_object_get(body, "seed");
    out->has_seed = seed != NULL && !json_is_null(seed);
    return true;
}

/* A list of strings or a single one, of which a request keeps pointers. */
static bool read_stops(const json_t *value, serve_request *r, serve_problem *problem)
{
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (value == NULL || json_is_null(value))
        return true;
    if (count > MOST_STOPS) {
        serve_refuse(problem, 400, "stop", "stop has %zu strings; at most %d are possible", count,
                     MOST_STOPS);
        return false;
    }
    r->stops = cli_alloc(count + 1, sizeof *r->stops);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        const char *text = json_string_value(one);
        if (text == NULL || *text == '\0' || strlen(text) > TSR_TEXT_STREAM_MAX_STOP_BYTES) {
            serve_refuse(problem, 400, "stop",
                         "stop is not a string, or a list of strings, of 1 to %d bytes",
                         TSR_TEXT_STREAM_MAX_STOP_BYTES);
            return false;
        }
        r->stops[r->stop_count++] = text;
    }
    return true;
}

/* Reads a token id, each of which has one spelling only, so that no object has it twice. Returns −1
 * if it is not one. */
static int64_t read_id(const char *text)
{
    char *end = NULL;
    const long long id = strtoll(text, &end, 10);
    const bool plain = *text >= '0' && *text <= '9' && (*text != '0' || text[1] == '\0');
    return plain && *end == '\0' ? id : -1;
}

/* An object with numbers by token ids, such as {"50256": -100}. */
static bool read_biases(const serve_server *server, json_t *value, serve_request *r,
                        serve_problem *problem)
{
    const char *key;
    json_t *one;
    if (value == NULL || json_is_null(value))
        return true;
    if (!json_is_object(value) || json_object_size(value) > MOST_BIASES) {
        serve_refuse(problem, 400, "logit_bias",
                     "logit_bias is not an object with at most %d token ids", MOST_BIASES);
        return false;
    }
    r->biases = cli_alloc(json_object_size(value) + 1, sizeof *r->biases);
    json_object_foreach(value, key, one)
    {
        const int64_t id = read_id(key);
        const double bias = json_number_value(one);
        if (id < 0 || id >= server->vocabulary || !json_is_number(one) ||
            !(bias >= -100 && bias <= 100)) {
            serve_refuse(problem, 400, "logit_bias",
                         "logit_bias of '%.40s' is not a number from -100 to 100 for a token id "
                         "from 0 to %" PRId64,
                         key, server->vocabulary - 1);
            return false;
        }
        r->biases[r->sampling.bias_count++] = (tsr_logit_bias){(int32_t)id, (float)bias};
    }
    return true;
}

/* Whether and how a request wants log-probabilities: completions give a number, chats two values.
 */
static bool read_log_probabilities(const values *v, serve_request *r, serve_problem *problem)
{
    if (r->chat && v->top_logprobs > 0 && !v->logprobs) {
        serve_refuse(problem, 400, "top_logprobs", "top_logprobs needs logprobs to be true");
        return false;
    }
    r->log_probabilities = r->chat ? v->logprobs : v->log_probabilities >= 0;
    r->top_log_probabilities = (int)(r->chat                    ? v->top_logprobs
                                     : v->log_probabilities > 0 ? v->log_probabilities
                                                                : 0);
    const int64_t numbers = r->log_probabilities ? v->n * (1 + r->top_log_probabilities) : 0;
    if (numbers <= MOST_LOG_PROBABILITIES)
        return true;
    const char *name = r->chat ? "top_logprobs" : "logprobs";
    serve_refuse(problem, 400, name, "n is %" PRId64 " and %s %d; n · (1 + %s) must be at most %d",
                 v->n, name, r->top_log_probabilities, name, MOST_LOG_PROBABILITIES);
    return false;
}

static bool read_stream_options(const json_t *value, serve_request *r, serve_problem *problem)
{
    if (value == NULL || json_is_null(value))
        return true;
    const json_t *usage = json_object_get(value, "include_usage");
    if (!json_is_object(value) || (usage != NULL && !json_is_boolean(usage))) {
        serve_refuse(problem, 400, "stream_options",
                     "stream_options is not an object with include_usage, true or false");
        return false;
    }
    r->include_usage = json_is_true(usage);
    return true;
}

/* Returns the adapter with this name, or −1. */
static int find_adapter(const char *name)
{
    for (int i = 0; i < inference_chosen.adapter_count; i++)
        if (strcmp(inference_chosen.adapters[i].name, name) == 0)
            return i;
    return -1;
}

/* Reads `model`, the name of the model or of an adapter, and `lora`, that of an adapter. */
static bool read_model(const serve_server *server, serve_request *r, serve_problem *problem)
{
    static const char *const members[] = {"model", "lora"};
    r->adapter = -1;
    for (int i = 0; i < 2; i++) {
        const json_t *value = json_object_get(r->body, members[i]);
        const char *name = json_string_value(value);
        if (value == NULL || json_is_null(value))
            continue;
        const int adapter = name != NULL ? find_adapter(name) : -1;
        if (name == NULL || (adapter < 0 && (i == 1 || strcmp(name, server->name) != 0))) {
            serve_refuse(problem, name == NULL ? 400 : 404, members[i],
                         i == 0 ? "the model is '%.100s', not '%.100s'"
                                : "the model '%.100s' has no adapter '%.100s'",
                         server->name, name == NULL ? "(not a string)" : name);
            return false;
        }
        if (r->adapter >= 0 && adapter != r->adapter) {
            serve_refuse(problem, 400, members[i],
                         "model and lora name two adapters, '%.100s' and "
                         "'%.100s'",
                         inference_chosen.adapters[r->adapter].name, name);
            return false;
        }
        r->adapter = adapter;
    }
    return true;
}

/* Messages ------------------------------------------------------------------------------------- */

static bool read_role(const char *name, tsr_chat_role *out)
{
    static const struct {
        const char *name;
        tsr_chat_role role;
    } roles[] = {{"system", TSR_CHAT_SYSTEM},
                 {"developer", TSR_CHAT_SYSTEM},
                 {"user", TSR_CHAT_USER},
                 {"assistant", TSR_CHAT_ASSISTANT}};
    for (size_t i = 0; name != NULL && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].name, name) == 0) {
            *out = roles[i].role;
            return true;
        }
    return false;
}

/* Reads a message, whose text is in *text, which the caller must free. */
static bool read_message(const json_t *message, size_t index, tsr_chat_message *out, char **text,
                         serve_problem *problem)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    *out = TSR_INIT(tsr_chat_message);
    if (!read_role(role, &out->role)) {
        serve_refuse(problem, 400, "messages",
                     "message %zu has the role '%.40s'; system, developer, user and assistant "
                     "are possible",
                     index, role != NULL ? role : "(none)");
        return false;
    }
    *text = serve_content_text(json_object_get(message, "content"));
    if (*text == NULL) {
        serve_refuse(problem, 400, "messages",
                     "the content of message %zu is neither a string nor a list of texts", index);
        return false;
    }
    out->text = *text;
    out->size_bytes = strlen(*text);
    return true;
}

/* Gives a request a copy of the library's ids, and frees those. */
static void keep_ids(serve_request *r, int32_t **ids, uint64_t count)
{
    r->ids = cli_alloc((size_t)count + 1, sizeof *r->ids);
    if (count > 0)
        memcpy(r->ids, *ids, (size_t)count * sizeof *r->ids);
    r->id_count = (int64_t)count;
    tsr_tokenizer_free_ids(ids);
}

static bool encode_messages(const serve_server *server, const json_t *list, serve_request *r,
                            serve_problem *problem)
{
    const size_t count = json_array_size(list);
    if (count == 0 || count > TSR_CHAT_MAX_MESSAGES) {
        serve_refuse(problem, 400, "messages", "messages is not a list of 1 to %d messages",
                     TSR_CHAT_MAX_MESSAGES);
        return false;
    }
    int32_t *ids = NULL;
    uint64_t id_count = 0;
    if (serve_has_parts(server, r, list)) {
        if (!serve_encode_parts(server, list, r, &ids, &id_count, problem))
            return false;
        keep_ids(r, &ids, id_count);
        return true;
    }
    tsr_chat_message *messages = cli_alloc(count, sizeof *messages);
    char **texts = cli_alloc(count, sizeof *texts);
    bool good = true;
    size_t bytes = 0;
    for (size_t i = 0; i < count && good; i++) {
        good = read_message(json_array_get(list, i), i, &messages[i], &texts[i], problem);
        bytes += messages[i].size_bytes;
    }
    good = good && serve_check_bytes(server, bytes, "messages", problem);
    if (good && tsr_chat_encode(server->tokenizer,
                                tsr_chat_params(.format = inference_chosen.format,
                                                .messages = messages, .count = (int)count,
                                                .begin_reply = true, .reasoning = r->reasoning),
                                &ids, &id_count) != TSR_OK)
        good = refuse_by_library(problem, 400, "messages");
    if (good)
        keep_ids(r, &ids, id_count);
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    free(texts);
    free(messages);
    return good;
}

/* Prompts -------------------------------------------------------------------------------------- */

/* Reads a list of token ids. Returns NULL if it is not one. */
static int32_t *read_ids(const serve_server *server, const json_t *list, int64_t *count)
{
    const size_t size = json_array_size(list);
    const int64_t vocabulary = server->vocabulary;
    int32_t *ids = cli_alloc(size + 1, sizeof *ids);
    bool good = json_is_array(list);
    for (size_t i = 0; i < size && good; i++) {
        const json_t *id = json_array_get(list, i);
        good = json_is_integer(id) && json_integer_value(id) >= 0 &&
               json_integer_value(id) < vocabulary;
        ids[i] = good ? (int32_t)json_integer_value(id) : 0;
    }
    *count = (int64_t)size;
    if (!good)
        free(ids);
    return good ? ids : NULL;
}

static bool encode_prompt(const serve_server *server, const json_t *prompt, serve_request *r,
                          serve_problem *problem)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    if (json_is_array(prompt) && json_array_size(prompt) == 1 &&
        !json_is_integer(json_array_get(prompt, 0)))
        prompt = json_array_get(prompt, 0);
    if (json_is_string(prompt)) {
        if (!serve_check_bytes(server, json_string_length(prompt), "prompt", problem))
            return false;
        if (tsr_tokenizer_encode(server->tokenizer, json_string_value(prompt),
                                 json_string_length(prompt), NULL, &ids, &count) != TSR_OK)
            return refuse_by_library(problem, 400, "prompt");
        keep_ids(r, &ids, count);
    } else {
        r->ids = read_ids(server, prompt, &r->id_count);
        if (r->ids == NULL) {
            serve_refuse(problem, 400, "prompt",
                         "prompt is neither a string nor a list of token ids of the vocabulary");
            return false;
        }
    }
    if (r->id_count == 0) {
        serve_refuse(problem, 400, "prompt", "the prompt has no token");
        return false;
    }
    return true;
}

/* Requests ------------------------------------------------------------------------------------- */

static void name_request(serve_request *r)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[12];
    r->created = (int64_t)time(NULL);
    snprintf(r->id, sizeof r->id, "%s", r->chat ? "chatcmpl-" : "cmpl-");
    FILE *random = fopen("/dev/urandom", "r");
    if (random == NULL || fread(bytes, sizeof bytes, 1, random) != 1)
        memcpy(bytes, &r, sizeof r);
    if (random != NULL)
        fclose(random);
    char *end = r->id + strlen(r->id);
    for (size_t i = 0; i < sizeof bytes; i++) {
        *end++ = digits[bytes[i] >> 4];
        *end++ = digits[bytes[i] & 15];
    }
    *end = '\0';
}

/* A request without a seed gets one of its own: its random id. */
static uint64_t seed_of(const serve_request *r, const values *v)
{
    uint64_t seed = 0;
    for (const char *c = r->id; *c != '\0' && !v->has_seed; c++)
        seed = seed * 31 + (unsigned char)*c;
    return v->has_seed ? (uint64_t)v->seed : seed;
}

/* A tokenizer may have more tokens than the model. */
static bool check_tokens(const serve_server *server, const serve_request *r, serve_problem *problem)
{
    for (int64_t i = 0; i < r->id_count; i++)
        if (r->ids[i] >= server->vocabulary) {
            serve_refuse(problem, 400, r->chat ? "messages" : "prompt",
                         "the prompt has the token %" PRId32
                         ", but the model's vocabulary has only 0 to %" PRId64,
                         r->ids[i], server->vocabulary - 1);
            return false;
        }
    return true;
}

static bool check_length(const serve_server *server, const serve_request *r, serve_problem *problem)
{
    if (r->id_count < server->context)
        return true;
    serve_refuse(problem, 400, r->chat ? "messages" : "prompt",
                 "the prompt has %" PRId64 " tokens, but the context has only %" PRId64,
                 r->id_count, server->context);
    return false;
}

static bool fill_request(const serve_server *server, serve_request *r, serve_problem *problem)
{
    values v = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .n = 1, .log_probabilities = -1};
    r->sampling = TSR_INIT(tsr_sampling_params);
    if (!read_parameters(r->body, r->chat, &v, problem) || !read_model(server, r, problem) ||
        !read_stops(json_object_get(r->body, "stop"), r, problem) ||
        !read_stream_options(json_object_get(r->body, "stream_options"), r, problem) ||
        !read_biases(server, json_object_get(r->body, "logit_bias"), r, problem) ||
        !read_log_probabilities(&v, r, problem) ||
        (r->chat && (!serve_read_tools(server, r, problem) || !serve_read_reasoning(r, problem))) ||
        !(r->chat ? encode_messages(server, json_object_get(r->body, "messages"), r, problem)
                  : encode_prompt(server, json_object_get(r->body, "prompt"), r, problem)) ||
        !serve_read_structure(server, r, problem) || !serve_require_tools(server, r, problem) ||
        !check_length(server, r, problem) || !check_tokens(server, r, problem))
        return false;
    r->stream = v.stream;
    r->max_tokens = v.max_completion_tokens > 0 ? v.max_completion_tokens : v.max_tokens;
    if (r->max_tokens == 0 && !r->chat)
        r->max_tokens = 16; /* OpenAI's default for completions */
    r->sampling.temperature = v.temperature;
    r->sampling.top_p = v.top_p > 0 ? v.top_p : TSR_ZERO;
    r->sampling.top_k = v.top_k;
    r->sampling.min_p = v.min_p;
    r->sampling.repetition_penalty = v.repetition_penalty;
    r->sampling.presence_penalty = v.presence_penalty;
    r->sampling.frequency_penalty = v.frequency_penalty;
    r->sampling.seed = seed_of(r, &v);
    r->choices = cli_alloc((size_t)v.n, sizeof *r->choices);
    r->choice_count = r->left = (int)v.n;
    for (int i = 0; i < r->choice_count; i++)
        r->choices[i] = (serve_choice){.request = r, .index = i, .sequence = -1};
    return true;
}

/* Frees the members of the body that nothing points into, so that requests that wait need little
 * memory. */
static void keep_members(serve_request *r)
{
    json_t *kept = json_object(), *unused = r->body, *stop = json_object_get(r->body, "stop"),
           *tools = r->tools != NULL ? json_object_get(r->body, "tools") : NULL;
    const bool good = kept != NULL && (stop == NULL || json_object_set(kept, "stop", stop) == 0) &&
                      (tools == NULL || json_object_set(kept, "tools", tools) == 0);
    if (good)
        r->body = kept;
    json_decref(good ? unused : kept);
}

serve_request *serve_request_read(const serve_server *server, bool chat, const char *body,
                                  size_t size, serve_problem *problem)
{
    json_t *object = read_object(body, size, problem);
    if (object == NULL)
        return NULL;
    serve_request *r = cli_alloc(1, sizeof *r);
    r->chat = chat;
    r->body = object;
    r->users = 1;
    r->socket = -1;
    name_request(r);
    if (fill_request(server, r, problem)) {
        keep_members(r);
        return r;
    }
    serve_request_leave(r);
    return NULL;
}

static void finish_choice(serve_choice *c)
{
    free(c->tokens);
    tsr_text_stream_destroy(&c->stream);
    json_decref(c->log_probabilities);
    cli_text_free(&c->answer);
    cli_text_free(&c->reasoning);
    for (int i = 0; i < 2; i++) {
        cli_text_free(&c->before[i]);
        cli_text_free(&c->after[i]);
    }
    cli_text_free(&c->held);
    cli_text_free(&c->arguments);
    json_decref(c->calls);
}

void serve_request_leave(serve_request *r)
{
    if (--r->users > 0)
        return;
    for (int i = 0; i < r->choice_count; i++)
        finish_choice(&r->choices[i]);
    free(r->choices);
    free(r->biases);
    free(r->ids);
    free(r->stops);
    serve_grammar_leave(r->grammar);
    json_decref(r->body);
    cli_text_free(&r->events);
    free(r);
}

/* Tokens --------------------------------------------------------------------------------------- */

/* Reads an object with no other members than these; `flag`, which may be NULL, is true or false. */
static json_t *read_members(const char *body, size_t size, const char *value, const char *flag,
                            serve_problem *problem)
{
    json_t *object = read_object(body, size, problem), *one;
    const char *name;
    json_object_foreach(object, name, one)
    {
        const bool is_flag = flag != NULL && strcmp(name, flag) == 0;
        if (!is_flag && strcmp(name, value) != 0)
            serve_refuse(problem, 400, name, "there is no parameter '%.60s'", name);
        else if (is_flag && !json_is_boolean(one) && !json_is_null(one))
            refuse_value(&(parameter){.name = flag}, one, "true or false", problem);
    }
    if (problem->status == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *serve_tokenize(const serve_server *server, const char *body, size_t size,
                       serve_problem *problem)
{
    json_t *object = read_members(body, size, "content", "add_special", problem), *answer = NULL;
    if (object == NULL)
        return NULL;
    const json_t *content = json_object_get(object, "content");
    const bool special = json_is_true(json_object_get(object, "add_special"));
    int32_t *ids = NULL;
    uint64_t count = 0;
    if (!json_is_string(content)) {
        serve_refuse(problem, 400, "content", "content is not a string");
    } else if (tsr_tokenizer_encode(
                   server->tokenizer, json_string_value(content), json_string_length(content),
                   tsr_encode_params(.add = special ? TSR_ENCODE_ADD_DEFAULT : TSR_ENCODE_ADD_NONE),
                   &ids, &count) != TSR_OK) {
        refuse_by_library(problem, 400, "content");
    } else {
        json_t *list = json_array();
        for (uint64_t i = 0; i < count; i++)
            json_array_append_new(list, json_integer(ids[i]));
        answer = json_pack("{so}", "tokens", list);
    }
    tsr_tokenizer_free_ids(&ids);
    json_decref(object);
    return answer;
}

/* Returns the text of ids as valid UTF-8, or NULL after an error of the library. */
static json_t *decoded(const serve_server *server, const int32_t *ids, int64_t count)
{
    tsr_text_stream *stream = NULL;
    cli_text text = {0};
    const char *piece = NULL;
    size_t size = 0;
    bool stopped = false;
    cli_text_add(&text, "", 0);
    tsr_status status = tsr_text_stream_create(
        tsr_text_stream_params(.tokenizer = server->tokenizer, .invalid = TSR_TEXT_INVALID_REPLACE),
        &stream);
    for (int64_t i = 0; i <= count && status == TSR_OK; i++) {
        status = i < count ? tsr_text_stream_add(stream, ids[i], &piece, &size, &stopped)
                           : tsr_text_stream_end(stream, &piece, &size);
        if (status == TSR_OK)
            cli_text_add(&text, piece, size);
    }
    tsr_text_stream_destroy(&stream);
    json_t *answer = status == TSR_OK ? json_pack("{ss%}", "content", text.data, text.size) : NULL;
    cli_text_free(&text);
    return answer;
}

json_t *serve_detokenize(const serve_server *server, const char *body, size_t size,
                         serve_problem *problem)
{
    json_t *object = read_members(body, size, "tokens", NULL, problem), *answer = NULL;
    if (object == NULL)
        return NULL;
    int64_t count = 0;
    int32_t *ids = read_ids(server, json_object_get(object, "tokens"), &count);
    if (ids == NULL)
        serve_refuse(problem, 400, "tokens", "tokens is not a list of ids of the vocabulary");
    else if ((answer = decoded(server, ids, count)) == NULL)
        refuse_by_library(problem, 400, "tokens");
    free(ids);
    json_decref(object);
    return answer;
}
