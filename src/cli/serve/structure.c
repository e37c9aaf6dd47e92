/* Texts of a given form: the parameters `response_format`, `grammar`, and those about the reasoning
 * before an answer. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/serve/tools.h"

tsr_chat_format serve_format(const serve_server *server)
{
    tsr_chat_format format = inference_chosen.format;
    if (format == TSR_CHAT_MODEL && tsr_chat_format_of(server->tokenizer, &format) != TSR_OK)
        return TSR_CHAT_MODEL;
    return format;
}

/* Reasoning ------------------------------------------------------------------------------------ */

/* Reads reasoning_effort: "none", "minimal", "low", "medium" or "high". */
static bool read_effort(const json_t *value, serve_request *r, serve_problem *problem)
{
    static const struct {
        const char *name;
        tsr_chat_reasoning reasoning;
    } efforts[] = {{"none", TSR_CHAT_REASONING_NONE},
                   {"minimal", TSR_CHAT_REASONING_LOW},
                   {"low", TSR_CHAT_REASONING_LOW},
                   {"medium", TSR_CHAT_REASONING_MEDIUM},
                   {"high", TSR_CHAT_REASONING_HIGH}};
    const char *given = json_string_value(value);
    if (value == NULL || json_is_null(value))
        return true;
    for (size_t i = 0; given != NULL && i < sizeof efforts / sizeof *efforts; i++)
        if (strcmp(given, efforts[i].name) == 0) {
            r->reasoning = efforts[i].reasoning;
            return true;
        }
    serve_refuse(problem, 400, "reasoning_effort",
                 "reasoning_effort is '%.40s'; none, minimal, low, medium and high are possible",
                 given != NULL ? given : "(not a string)");
    return false;
}

bool serve_read_reasoning(serve_request *r, serve_problem *problem)
{
    json_t *options = json_object_get(r->body, "chat_template_kwargs"), *value;
    const char *key;
    if (!read_effort(json_object_get(r->body, "reasoning_effort"), r, problem))
        return false;
    if (options != NULL && !json_is_object(options) && !json_is_null(options)) {
        serve_refuse(problem, 400, "chat_template_kwargs", "chat_template_kwargs is not an object");
        return false;
    }
    json_object_foreach(options, key, value)
    {
        if (strcmp(key, "reasoning_effort") == 0) {
            if (!read_effort(value, r, problem))
                return false;
        } else if (strcmp(key, "enable_thinking") == 0 && json_is_boolean(value)) {
            if (json_is_false(value))
                r->reasoning = TSR_CHAT_REASONING_NONE;
            else if (r->reasoning == TSR_CHAT_REASONING_DEFAULT)
                r->reasoning = TSR_CHAT_REASONING_MEDIUM;
        } else {
            serve_refuse(problem, 400, "chat_template_kwargs",
                         "of chat_template_kwargs, only enable_thinking (true or false) and "
                         "reasoning_effort are supported, not '%.60s'",
                         key);
            return false;
        }
    }
    return true;
}

/* Grammars ------------------------------------------------------------------------------------- */

bool serve_set_grammar(const serve_server *server, serve_request *r, const cli_text *text,
                       const char *parameter, serve_problem *problem)
{
    if (r->grammar != NULL) {
        serve_refuse(problem, 400, parameter,
                     "only one of response_format, grammar and a required tool can say what the "
                     "text is");
        return false;
    }
    /* The generator refuses such grammars, too, but that would end the server. */
    if (tsr_tokenizer_size(server->tokenizer) > server->vocabulary) {
        serve_refuse(problem, 400, parameter,
                     "grammars are not supported: the tokenizer has %" PRId32
                     " tokens, but the model's vocabulary only %" PRId64,
                     tsr_tokenizer_size(server->tokenizer), server->vocabulary);
        return false;
    }
    if (serve_grammar_get(server, text->data, text->size, &r->grammar) == TSR_OK)
        return true;
    serve_refuse(problem, 400, parameter, "%s", tsr_last_error());
    return false;
}

/* Appends the rule of a reply: what may come before its answer, which `answer` and `more` are. */
static void add_reply_rule(const serve_server *server, const serve_request *r, const char *answer,
                           const char *more, cli_text *out)
{
    char before[INFERENCE_REASONING_GRAMMAR] = "";
    if (r->chat)
        inference_answer_grammar(server->tokenizer, serve_format(server), r->reasoning, before,
                                 sizeof before);
    cli_text_print(out, SERVE_REPLY_RULE " ::= ");
    cli_text_print(out, before);
    cli_text_print(out, answer);
    cli_text_print(out, more);
    cli_text_print(out, "\n");
}

static bool set_schema(const serve_server *server, serve_request *r, const json_t *schema,
                       serve_problem *problem)
{
    cli_text grammar = {0};
    char *text = json_dumps(schema, JSON_COMPACT);
    if (text != NULL)
        add_reply_rule(server, r, "%json ", text, &grammar);
    const bool good =
        text != NULL && serve_set_grammar(server, r, &grammar, "response_format", problem);
    cli_text_free(&grammar);
    free(text);
    return good;
}

/* {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", "json_schema": {"name": …,
 * "schema": …}}, of which completions may have the schema directly. */
static bool read_format(const serve_server *server, const json_t *value, serve_request *r,
                        serve_problem *problem)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    if (value == NULL || json_is_null(value) || (type != NULL && strcmp(type, "text") == 0))
        return true;
    if (type != NULL && strcmp(type, "json_object") == 0) {
        json_t *object = json_pack("{ss}", "type", "object");
        const bool good = set_schema(server, r, object, problem);
        json_decref(object);
        return good;
    }
    const json_t *schema = json_object_get(json_object_get(value, "json_schema"), "schema");
    if (type == NULL || strcmp(type, "json_schema") != 0 || !json_is_object(schema)) {
        serve_refuse(problem, 400, "response_format",
                     "response_format is not an object whose type is text, json_object or "
                     "json_schema; the last one has json_schema.schema, an object");
        return false;
    }
    return set_schema(server, r, schema, problem);
}

/* A user's grammar, in GBNF. */
static bool read_grammar(const serve_server *server, const json_t *value, serve_request *r,
                         serve_problem *problem)
{
    cli_text grammar = {0};
    if (value == NULL || json_is_null(value))
        return true;
    if (!json_is_string(value)) {
        serve_refuse(problem, 400, "grammar", "grammar is not a string");
        return false;
    }
    cli_text_add(&grammar, json_string_value(value), json_string_length(value));
    cli_text_print(&grammar, "\n");
    add_reply_rule(server, r, "root", "", &grammar);
    const bool good = serve_set_grammar(server, r, &grammar, "grammar", problem);
    cli_text_free(&grammar);
    return good;
}

bool serve_read_structure(const serve_server *server, serve_request *r, serve_problem *problem)
{
    return read_format(server, json_object_get(r->body, "response_format"), r, problem) &&
           read_grammar(server, json_object_get(r->body, "grammar"), r, problem);
}
