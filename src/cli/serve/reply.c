/* The documents that the server sends, in OpenAI's form. */
#include <string.h>

#include "cli/serve/serve.h"

json_t *serve_error_json(const serve_problem *problem)
{
    const char *type = problem->status == 401   ? "authentication_error"
                       : problem->status == 429 ? "rate_limit_error"
                       : problem->status >= 500 ? "server_error"
                                                : "invalid_request_error";
    return json_pack("{s{sssssosi}}", "error", "message", problem->message, "type", type, "param",
                     problem->parameter[0] != '\0' ? json_string(problem->parameter) : json_null(),
                     "code", (int)problem->status);
}

json_t *serve_models_json(const serve_server *server)
{
    json_t *list = json_pack("[{sssssIss}]", "id", server->name, "object", "model", "created",
                             (json_int_t)0, "owned_by", "tessera");
    for (int i = 0; i < inference_chosen.adapter_count; i++)
        json_array_append_new(list,
                              json_pack("{sssssIssss}", "id", inference_chosen.adapters[i].name,
                                        "object", "model", "created", (json_int_t)0, "owned_by",
                                        "tessera", "parent", server->name));
    return json_pack("{ssso}", "object", "list", "data", list);
}

const char *serve_model_name(const serve_server *server, const serve_request *r)
{
    return r->adapter >= 0 ? inference_chosen.adapters[r->adapter].name : server->name;
}

json_t *serve_ranks_json(const serve_server *server)
{
    json_t *list = json_array(), *incidents = json_array();
    for (int i = 0; i < server->part_count; i++)
        json_array_append_new(list,
                              json_pack("{sisssIsI}", "rank", i, "device", server->parts[i].device,
                                        "weight_bytes", (json_int_t)server->parts[i].weight_bytes,
                                        "memory_bytes", (json_int_t)server->parts[i].memory_bytes));
    const int count = server->incident_count;
    for (int i = count > SERVE_INCIDENTS ? count - SERVE_INCIDENTS : 0; i < count; i++) {
        const serve_incident *one = &server->incidents[i % SERVE_INCIDENTS];
        char text[sizeof one->text];
        serve_copy_utf8(text, sizeof text, one->text);
        json_array_append_new(incidents,
                              json_pack("{sIss}", "time", (json_int_t)one->time, "message", text));
    }
    return json_pack("{sosisisIso}", "ranks", list, "running", server->running, "waiting",
                     server->waiting, "generated_tokens",
                     (json_int_t)server->metrics.generated_tokens, "incidents", incidents);
}

static json_t *usage(const serve_request *r)
{
    json_int_t generated = 0;
    for (int i = 0; i < r->choice_count; i++)
        generated += r->choices[i].generated;
    return json_pack("{sIsIsIs{sI}}", "prompt_tokens", (json_int_t)r->id_count, "completion_tokens",
                     generated, "total_tokens", (json_int_t)r->id_count + generated,
                     "prompt_tokens_details", "cached_tokens", (json_int_t)r->choices[0].cached);
}

/* A document with these choices. */
static json_t *document(const serve_server *server, const serve_request *r, const char *object,
                        json_t *choices)
{
    return json_pack("{sssssIssso}", "id", r->id, "object", object, "created",
                     (json_int_t)r->created, "model", serve_model_name(server, r), "choices",
                     choices);
}

static json_t *finish_reason(const serve_choice *c)
{
    return c->finish_reason != NULL ? json_string(c->finish_reason) : json_null();
}

static json_t *text_json(const cli_text *text)
{
    return text->data != NULL ? json_stringn(text->data, text->size) : json_string("");
}

/* Log-probabilities ---------------------------------------------------------------------------- */

/* The text of a token by itself; bytes that are not UTF-8 become U+FFFD. */
static json_t *token_text(const char *bytes, size_t size)
{
    json_t *whole = json_stringn(bytes, size);
    cli_text text = {0};
    if (whole != NULL)
        return whole;
    cli_text_add(&text, "", 0);
    for (size_t at = 0, length; at < size; at += length) {
        length = 1;
        while (length < 4 && length < size - at && !serve_is_utf8(bytes + at, length))
            length++;
        if (serve_is_utf8(bytes + at, length)) {
            cli_text_add(&text, bytes + at, length);
        } else {
            cli_text_add(&text, "\xef\xbf\xbd", 3);
            length = 1;
        }
    }
    whole = json_stringn(text.data, text.size);
    cli_text_free(&text);
    return whole;
}

/* Describes a token as chats do: its text, its bytes and its log-probability. */
static tsr_status token_json(const serve_server *server, const tsr_decode_state *before, int32_t id,
                             double log_probability, json_t **out)
{
    const char *bytes = "";
    size_t size = 0;
    tsr_decode_state state = *before;
    if (id < tsr_tokenizer_size(server->tokenizer)) {
        const tsr_status status =
            tsr_tokenizer_decode_next(server->tokenizer, &state, id, &bytes, &size);
        if (status != TSR_OK)
            return status;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < size; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    *out = json_pack("{sosfso}", "token", token_text(bytes, size), "logprob", log_probability,
                     "bytes", list);
    return TSR_OK;
}

tsr_status serve_add_log_probability(const serve_server *server, serve_choice *c,
                                     const tsr_generated *token)
{
    json_t *entry = NULL, *top = json_array();
    const char *bytes;
    size_t size;
    tsr_status status =
        token_json(server, &c->decoding, token->token, token->log_probability, &entry);
    for (int i = 0; i < token->top_count && status == TSR_OK; i++) {
        json_t *one = NULL;
        status = token_json(server, &c->decoding, token->top[i].token,
                            token->top[i].log_probability, &one);
        if (status == TSR_OK)
            json_array_append_new(top, one);
    }
    if (status == TSR_OK && token->token < tsr_tokenizer_size(server->tokenizer))
        status =
            tsr_tokenizer_decode_next(server->tokenizer, &c->decoding, token->token, &bytes, &size);
    if (status != TSR_OK) {
        json_decref(entry);
        json_decref(top);
        return status;
    }
    json_object_set_new(entry, "top_logprobs", top);
    if (c->log_probabilities == NULL)
        c->log_probabilities = json_array();
    json_array_append_new(c->log_probabilities, entry);
    return TSR_OK;
}

/* The entries of a completion: lists of texts, of log-probabilities, and of the most likely tokens
 * with theirs, by text. */
static json_t *completion_log_probabilities(const json_t *entries)
{
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array();
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i),
                     *list = json_object_get(entry, "top_logprobs");
        json_t *top = json_object();
        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *one = json_array_get(list, k);
            json_object_set(top, json_string_value(json_object_get(one, "token")),
                            json_object_get(one, "logprob"));
        }
        json_array_append(tokens, json_object_get(entry, "token"));
        json_array_append(values, json_object_get(entry, "logprob"));
        json_array_append_new(tops, top);
    }
    return json_pack("{sososo}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops);
}

/* Takes the log-probabilities that have not been sent yet; null if there are none. */
static json_t *take_log_probabilities(serve_choice *c)
{
    json_t *entries = c->log_probabilities;
    c->log_probabilities = NULL;
    if (entries == NULL)
        return json_null();
    if (c->request->chat)
        return json_pack("{soso}", "content", entries, "refusal", json_null());
    json_t *lists = completion_log_probabilities(entries);
    json_decref(entries);
    return lists;
}

/* Whole replies -------------------------------------------------------------------------------- */

static json_t *choice_json(serve_choice *c)
{
    if (!c->request->chat)
        return json_pack("{sisososo}", "index", c->index, "text", text_json(&c->answer), "logprobs",
                         take_log_probabilities(c), "finish_reason", finish_reason(c));
    json_t *message = json_pack("{ssso}", "role", "assistant", "content", text_json(&c->answer));
    if (c->reasoning.size > 0)
        json_object_set_new(message, "reasoning_content", text_json(&c->reasoning));
    if (c->calls != NULL) {
        json_object_set(message, "tool_calls", c->calls);
        if (c->answer.size == 0)
            json_object_set_new(message, "content", json_null());
    }
    return json_pack("{sisososo}", "index", c->index, "message", message, "logprobs",
                     take_log_probabilities(c), "finish_reason", finish_reason(c));
}

json_t *serve_reply_json(const serve_server *server, const serve_request *r)
{
    json_t *choices = json_array();
    for (int i = 0; i < r->choice_count; i++)
        json_array_append_new(choices, choice_json(&r->choices[i]));
    json_t *reply = document(server, r, r->chat ? "chat.completion" : "text_completion", choices);
    json_object_set_new(reply, "usage", usage(r));
    return reply;
}

/* Streams -------------------------------------------------------------------------------------- */

static void add_event(serve_request *r, json_t *value)
{
    cli_text_add(&r->events, "data: ", 6);
    cli_text_add_json(&r->events, value);
    cli_text_add(&r->events, "\n\n", 2);
}

static void add_choice(const serve_server *server, serve_choice *c, json_t *delta, const char *text,
                       size_t size)
{
    serve_request *r = c->request;
    json_t *choice =
        r->chat ? json_pack("{sisososo}", "index", c->index, "delta", delta, "logprobs",
                            take_log_probabilities(c), "finish_reason", finish_reason(c))
                : json_pack("{siss%soso}", "index", c->index, "text", text, size, "logprobs",
                            take_log_probabilities(c), "finish_reason", finish_reason(c));
    json_t *event = document(server, r, r->chat ? "chat.completion.chunk" : "text_completion",
                             json_pack("[o]", choice));
    if (r->include_usage)
        json_object_set_new(event, "usage", json_null());
    add_event(r, event);
}

void serve_event_begin(const serve_server *server, serve_choice *c)
{
    if (c->request->chat)
        add_choice(server, c, json_pack("{ssss}", "role", "assistant", "content", ""), "", 0);
}

static void add_text_event(const serve_server *server, serve_choice *c, bool reasoning,
                           const char *text, size_t size)
{
    json_t *delta =
        c->request->chat
            ? json_pack("{ss%}", reasoning ? "reasoning_content" : "content", text, size)
            : NULL;
    add_choice(server, c, delta, text, size);
}

/* Keeps what is before and after the text in events without log-probabilities. */
static void keep_event(const serve_server *server, serve_choice *c, bool reasoning)
{
    static const char mark[] = "\"\\u0001\"";
    cli_text *events = &c->request->events;
    const size_t begin = events->size;
    add_text_event(server, c, reasoning, "\1", 1);
    const char *at = NULL;
    for (const char *next = events->data + begin; (next = strstr(next, mark)) != NULL; next++)
        at = next; /* the model's name is before the text */
    cli_text_add(&c->before[reasoning], events->data + begin, (size_t)(at - events->data) - begin);
    cli_text_print(&c->after[reasoning], at + sizeof mark - 1);
    events->size = begin;
}

void serve_event_text(const serve_server *server, serve_choice *c, tsr_text_channel channel,
                      const char *text, size_t size)
{
    const bool reasoning = channel == TSR_TEXT_REASONING && c->request->chat;
    cli_text *events = &c->request->events;
    if (c->log_probabilities != NULL) {
        add_text_event(server, c, reasoning, text, size);
        return;
    }
    /* Events are most of the work for a token, so only what differs is made again. */
    if (c->before[reasoning].data == NULL)
        keep_event(server, c, reasoning);
    cli_text_add(events, c->before[reasoning].data, c->before[reasoning].size);
    cli_text_add_json(events, json_stringn(text, size));
    cli_text_add(events, c->after[reasoning].data, c->after[reasoning].size);
}

void serve_event_call(const serve_server *server, serve_choice *c)
{
    const size_t index = json_array_size(c->calls) - 1;
    json_t *begun = json_deep_copy(json_array_get(c->calls, index));
    json_object_set_new(begun, "index", json_integer((json_int_t)index));
    add_choice(server, c, json_pack("{s[o]}", "tool_calls", begun), "", 0);
}

void serve_event_arguments(const serve_server *server, serve_choice *c, const char *text,
                           size_t size)
{
    const json_int_t index = (json_int_t)json_array_size(c->calls) - 1;
    add_choice(server, c,
               json_pack("{s[{sIs{ss%}}]}", "tool_calls", "index", index, "function", "arguments",
                         text, size),
               "", 0);
}

void serve_event_finish(const serve_server *server, serve_choice *c)
{
    add_choice(server, c, c->request->chat ? json_object() : NULL, "", 0);
}

void serve_event_end(const serve_server *server, serve_request *r)
{
    static const char done[] = "data: [DONE]\n\n";
    if (r->failed.status != 0) {
        add_event(r, serve_error_json(&r->failed));
        return;
    }
    if (r->include_usage) {
        json_t *event = document(server, r, r->chat ? "chat.completion.chunk" : "text_completion",
                                 json_array());
        json_object_set_new(event, "usage", usage(r));
        add_event(r, event);
    }
    cli_text_add(&r->events, done, sizeof done - 1);
}
