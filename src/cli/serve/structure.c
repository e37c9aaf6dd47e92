/* Texts of a given form: the parameters `response_format` and `grammar`, and the compiled grammars,
 * which are kept for later requests. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

/* Grammars that are kept although nobody uses them. */
#define MOST_IDLE 32

struct serve_grammar {
    serve_grammar *next;
    int users;
    tsr_grammar_kind kind;
    char *text; /* [size] */
    size_t size;
    tsr_grammar *grammar;
};

/* All grammars, the one that was used last first. */
static serve_grammar *grammars;
static pthread_mutex_t grammars_lock = PTHREAD_MUTEX_INITIALIZER;

static void destroy(serve_grammar *g)
{
    tsr_grammar_destroy(&g->grammar);
    free(g->text);
    free(g);
}

/* Finds a grammar, and moves it to the start of the list. Needs the lock. */
static serve_grammar *find(tsr_grammar_kind kind, const char *text, size_t size)
{
    for (serve_grammar **place = &grammars; *place != NULL; place = &(*place)->next) {
        serve_grammar *g = *place;
        if (g->kind != kind || g->size != size || memcmp(g->text, text, size) != 0)
            continue;
        *place = g->next;
        g->next = grammars;
        grammars = g;
        g->users++;
        return g;
    }
    return NULL;
}

/* Destroys those that nobody has used for longest. Needs the lock. */
static void forget(int most)
{
    int idle = 0;
    for (serve_grammar **place = &grammars; *place != NULL;) {
        serve_grammar *g = *place;
        idle += g->users == 0;
        if (g->users == 0 && idle > most) {
            *place = g->next;
            destroy(g);
        } else {
            place = &g->next;
        }
    }
}

tsr_status serve_grammar_get(const serve_server *server, tsr_grammar_kind kind, const char *text,
                             size_t size, serve_grammar **out)
{
    pthread_mutex_lock(&grammars_lock);
    *out = find(kind, text, size);
    pthread_mutex_unlock(&grammars_lock);
    if (*out != NULL)
        return TSR_OK;
    tsr_grammar *compiled = NULL;
    tsr_grammar_state *start = NULL;
    tsr_status status =
        tsr_grammar_create(tsr_grammar_params(.tokenizer = server->tokenizer, .kind = kind,
                                              .text = text, .size_bytes = size),
                           &compiled);
    /* A grammar that is too ambiguous for any text is refused here: a text that cannot begin is an
     * error of the whole step. */
    if (status == TSR_OK)
        status = tsr_grammar_state_create(compiled, NULL, &start);
    tsr_grammar_state_destroy(&start);
    if (status != TSR_OK) {
        tsr_grammar_destroy(&compiled);
        return status;
    }
    serve_grammar *g = cli_alloc(1, sizeof *g);
    *g = (serve_grammar){.users = 1, .kind = kind, .size = size, .grammar = compiled};
    g->text = cli_alloc(size + 1, 1);
    memcpy(g->text, text, size);
    pthread_mutex_lock(&grammars_lock);
    g->next = grammars;
    grammars = g;
    forget(MOST_IDLE);
    pthread_mutex_unlock(&grammars_lock);
    *out = g;
    return TSR_OK;
}

void serve_grammar_leave(serve_grammar *g)
{
    if (g == NULL)
        return;
    pthread_mutex_lock(&grammars_lock);
    g->users--;
    pthread_mutex_unlock(&grammars_lock);
}

void serve_grammars_finish(void)
{
    pthread_mutex_lock(&grammars_lock);
    forget(0);
    pthread_mutex_unlock(&grammars_lock);
}

tsr_grammar *serve_grammar_of(const serve_grammar *g)
{
    return g->grammar;
}

void serve_grammar_write(const serve_grammar *g, serve_text *out)
{
    const int64_t head[] = {g != NULL ? (int64_t)g->kind : 0, g != NULL ? (int64_t)g->size : -1};
    serve_text_add(out, (const char *)head, sizeof head);
    if (g != NULL)
        serve_text_add(out, g->text, g->size);
}

tsr_status serve_grammar_read(const serve_server *server, const char **at, serve_grammar **out)
{
    int64_t head[2];
    memcpy(head, *at, sizeof head);
    *at += sizeof head;
    *out = NULL;
    if (head[1] < 0)
        return TSR_OK;
    const char *text = *at;
    *at += head[1];
    return serve_grammar_get(server, (tsr_grammar_kind)head[0], text, (size_t)head[1], out);
}

/* Parameters ----------------------------------------------------------------------------------- */

/* Replies in these formats begin with reasoning, or with the name of a channel, which no grammar
 * allows. The prompt goes on up to the answer. */
static const char *answer_of(tsr_chat_format format)
{
    switch (format) {
    case TSR_CHAT_HARMONY:
        return "<|channel|>final<|message|>";
    case TSR_CHAT_GLM45:
        return "\n<think></think>\n";
    case TSR_CHAT_MINIMAX_M2:
        return "</think>\n\n";
    default:
        return "";
    }
}

bool serve_begin_reply(const serve_server *server, serve_request *r, const char *text,
                       serve_problem *problem)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    if (*text == '\0')
        return true;
    if (tsr_tokenizer_encode(
            server->tokenizer, text, strlen(text),
            tsr_encode_params(.add = TSR_ENCODE_ADD_NONE, .control = TSR_ENCODE_CONTROL_TOKEN),
            &ids, &count) != TSR_OK) {
        serve_refuse(problem, 400, "messages", "%s", tsr_last_error());
        return false;
    }
    r->ids = cli_resize(r->ids, (size_t)r->id_count + (size_t)count + 1, sizeof *r->ids);
    memcpy(r->ids + r->id_count, ids, (size_t)count * sizeof *ids);
    r->id_count += (int64_t)count;
    tsr_tokenizer_free_ids(&ids);
    return true;
}

bool serve_set_grammar(const serve_server *server, serve_request *r, tsr_grammar_kind kind,
                       const char *text, size_t size, const char *parameter, serve_problem *problem)
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
    if (serve_grammar_get(server, kind, text, size, &r->grammar) == TSR_OK)
        return true;
    serve_refuse(problem, 400, parameter, "%s", tsr_last_error());
    return false;
}

static bool set_schema(const serve_server *server, serve_request *r, const json_t *schema,
                       serve_problem *problem)
{
    char *text = json_dumps(schema, JSON_COMPACT);
    const bool good = text != NULL && serve_set_grammar(server, r, TSR_GRAMMAR_JSON_SCHEMA, text,
                                                        strlen(text), "response_format", problem);
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

bool serve_read_structure(const serve_server *server, serve_request *r, serve_problem *problem)
{
    const json_t *grammar = json_object_get(r->body, "grammar");
    tsr_chat_format format = inference_chosen.format;
    if (!read_format(server, json_object_get(r->body, "response_format"), r, problem))
        return false;
    if (grammar != NULL && !json_is_null(grammar)) {
        if (!json_is_string(grammar)) {
            serve_refuse(problem, 400, "grammar", "grammar is not a string");
            return false;
        }
        if (!serve_set_grammar(server, r, TSR_GRAMMAR_GBNF, json_string_value(grammar),
                               json_string_length(grammar), "grammar", problem))
            return false;
    }
    if (r->grammar == NULL || !r->chat)
        return true;
    if (format == TSR_CHAT_MODEL && tsr_chat_format_of(server->tokenizer, &format) != TSR_OK)
        return true; /* not reached: the messages have this format */
    return serve_begin_reply(server, r, answer_of(format), problem);
}
