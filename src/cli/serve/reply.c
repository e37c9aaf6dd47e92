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
    return json_pack("{sss[{sssssIss}]}", "object", "list", "data", "id", server->name, "object",
                     "model", "created", (json_int_t)0, "owned_by", "tessera");
}

static json_t *usage(const serve_request *r)
{
    return json_pack("{sIsIsIs{sI}}", "prompt_tokens", (json_int_t)r->id_count, "completion_tokens",
                     (json_int_t)r->generated, "total_tokens",
                     (json_int_t)r->id_count + (json_int_t)r->generated, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)r->cached);
}

/* A document with `choice` as its only choice; NULL: without one. */
static json_t *document(const serve_server *server, const serve_request *r, const char *object,
                        json_t *choice)
{
    json_t *choices = json_array();
    if (choice != NULL)
        json_array_append_new(choices, choice);
    return json_pack("{sssssIssso}", "id", r->id, "object", object, "created",
                     (json_int_t)r->created, "model", server->name, "choices", choices);
}

static json_t *finish_reason(const serve_request *r)
{
    return r->finish_reason != NULL ? json_string(r->finish_reason) : json_null();
}

static json_t *text_json(const serve_text *text)
{
    return text->data != NULL ? json_stringn(text->data, text->size) : json_string("");
}

json_t *serve_reply_json(const serve_server *server, const serve_request *r)
{
    json_t *choice = NULL;
    if (r->chat) {
        json_t *message =
            json_pack("{ssso}", "role", "assistant", "content", text_json(&r->answer));
        if (r->reasoning.size > 0)
            json_object_set_new(message, "reasoning_content", text_json(&r->reasoning));
        choice = json_pack("{sisososo}", "index", 0, "message", message, "logprobs", json_null(),
                           "finish_reason", finish_reason(r));
    } else {
        choice = json_pack("{sisososo}", "index", 0, "text", text_json(&r->answer), "logprobs",
                           json_null(), "finish_reason", finish_reason(r));
    }
    json_t *reply = document(server, r, r->chat ? "chat.completion" : "text_completion", choice);
    json_object_set_new(reply, "usage", usage(r));
    return reply;
}

/* Streams -------------------------------------------------------------------------------------- */

static void add_event(serve_request *r, json_t *value)
{
    serve_text_add(&r->events, "data: ", 6);
    serve_text_add_json(&r->events, value);
    serve_text_add(&r->events, "\n\n", 2);
}

static void add_choice(const serve_server *server, serve_request *r, json_t *delta,
                       const char *text, size_t size)
{
    json_t *choice = r->chat ? json_pack("{sisososo}", "index", 0, "delta", delta, "logprobs",
                                         json_null(), "finish_reason", finish_reason(r))
                             : json_pack("{siss%soso}", "index", 0, "text", text, size, "logprobs",
                                         json_null(), "finish_reason", finish_reason(r));
    json_t *event =
        document(server, r, r->chat ? "chat.completion.chunk" : "text_completion", choice);
    if (r->include_usage)
        json_object_set_new(event, "usage", json_null());
    add_event(r, event);
}

void serve_event_begin(const serve_server *server, serve_request *r)
{
    if (r->chat)
        add_choice(server, r, json_pack("{ssss}", "role", "assistant", "content", ""), "", 0);
}

void serve_event_text(const serve_server *server, serve_request *r, tsr_text_channel channel,
                      const char *text, size_t size)
{
    json_t *delta =
        r->chat
            ? json_pack("{ss%}", channel == TSR_TEXT_REASONING ? "reasoning_content" : "content",
                        text, size)
            : NULL;
    add_choice(server, r, delta, text, size);
}

void serve_event_end(const serve_server *server, serve_request *r)
{
    static const char done[] = "data: [DONE]\n\n";
    if (r->failed.status != 0) {
        add_event(r, serve_error_json(&r->failed));
        return;
    }
    add_choice(server, r, r->chat ? json_object() : NULL, "", 0);
    if (r->include_usage) {
        json_t *event =
            document(server, r, r->chat ? "chat.completion.chunk" : "text_completion", NULL);
        json_object_set_new(event, "usage", usage(r));
        add_event(r, event);
    }
    serve_text_add(&r->events, done, sizeof done - 1);
}
