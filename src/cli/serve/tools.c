/* Calls of tools: how each chat format describes tools, calls and their results in messages, and
 * how calls are found in a reply. The texts are those of the models' templates. */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

#define MOST_TOOLS 128
#define MOST_NAME 64

/* How a model's format writes calls. */
typedef enum style {
    NO_CALLS,
    HERMES, /* <tool_call> and an object (Qwen, Hermes): chatml */
    LLAMA,  /* the reply is an object: llama3 */
    MISTRAL /* [TOOL_CALLS] and a list of objects: mistral-v3, mistral-tekken */
} style;

static const char begin_call[] = "<tool_call>", end_call[] = "</tool_call>";

static style style_of(const serve_server *server)
{
    tsr_chat_format format = inference_chosen.format;
    if (format == TSR_CHAT_MODEL && tsr_chat_format_of(server->tokenizer, &format) != TSR_OK)
        return NO_CALLS;
    return format == TSR_CHAT_CHATML                                            ? HERMES
           : format == TSR_CHAT_LLAMA3                                          ? LLAMA
           : format == TSR_CHAT_MISTRAL_V3 || format == TSR_CHAT_MISTRAL_TEKKEN ? MISTRAL
                                                                                : NO_CALLS;
}

/* The name of the member that has a call's arguments. */
static const char *arguments_name(style s)
{
    return s == LLAMA ? "parameters" : "arguments";
}

static void add(serve_text *text, const char *string)
{
    serve_text_add(text, string, strlen(string));
}

/* Adds JSON with spaces, as templates write it; `indent` spaces for each level, or one line. */
static void add_json(serve_text *text, const json_t *value, size_t indent)
{
    char *line = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) |
                                       (indent > 0 ? JSON_INDENT(indent) : 0));
    add(text, line != NULL ? line : "null");
    free(line);
}

/* Parameters ----------------------------------------------------------------------------------- */

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static bool is_name(const char *name)
{
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t size = name != NULL ? strlen(name) : 0;
    return size >= 1 && size <= MOST_NAME && strspn(name, characters) == size;
}

static const json_t *find_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; name != NULL && i < json_array_size(tools); i++)
        if (strcmp(name_of(json_array_get(tools, i)), name) == 0)
            return json_array_get(tools, i);
    return NULL;
}

static bool check_tools(const json_t *tools, serve_problem *problem)
{
    if (!json_is_array(tools) || json_array_size(tools) > MOST_TOOLS) {
        serve_refuse(problem, 400, "tools", "tools is not a list of at most %d functions",
                     MOST_TOOLS);
        return false;
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i),
                     *function = json_object_get(tool, "function");
        const json_t *parameters = json_object_get(function, "parameters");
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (type == NULL || strcmp(type, "function") != 0 || !is_name(name_of(tool)) ||
            (parameters != NULL && !json_is_object(parameters))) {
            serve_refuse(
                problem, 400, "tools",
                "tool %zu is not {\"type\": \"function\", \"function\": {\"name\": …, "
                "\"parameters\": {…}}} with a name of 1 to %d letters, digits, '_' and '-'",
                i, MOST_NAME);
            return false;
        }
    }
    return true;
}

/* Reads tool_choice: "none", "auto", "required", or a function by its name. */
static bool read_choice(const json_t *value, serve_request *r, serve_problem *problem)
{
    const char *word = json_string_value(value);
    const char *name =
        json_string_value(json_object_get(json_object_get(value, "function"), "name"));
    r->tool_choice = SERVE_TOOLS_AUTO;
    if (value == NULL || json_is_null(value) || (word != NULL && strcmp(word, "auto") == 0))
        return true;
    if (word != NULL && strcmp(word, "none") == 0) {
        r->tool_choice = SERVE_TOOLS_NONE;
        return true;
    }
    r->tool_choice = SERVE_TOOLS_REQUIRED;
    if (word != NULL && strcmp(word, "required") == 0)
        return true;
    const json_t *tool = find_tool(r->tools, name);
    if (tool != NULL) {
        r->tool_name = name_of(tool); /* as long as the tools, which the request keeps */
        return true;
    }
    serve_refuse(problem, 400, "tool_choice",
                 "tool_choice is neither none, auto, required nor {\"type\": \"function\", "
                 "\"function\": {\"name\": …}} with the name of a tool");
    return false;
}

bool serve_read_tools(const serve_server *server, serve_request *r, serve_problem *problem)
{
    const json_t *tools = json_object_get(r->body, "tools"),
                 *choice = json_object_get(r->body, "tool_choice");
    if (tools != NULL && !json_is_null(tools)) {
        if (!check_tools(tools, problem))
            return false;
        r->tools = json_array_size(tools) > 0 ? tools : NULL;
    }
    if (r->tools == NULL && choice != NULL && !json_is_null(choice) &&
        strcmp(json_is_string(choice) ? json_string_value(choice) : "", "none") != 0 &&
        strcmp(json_is_string(choice) ? json_string_value(choice) : "", "auto") != 0) {
        serve_refuse(problem, 400, "tool_choice", "tool_choice needs tools");
        return false;
    }
    if (r->tools == NULL)
        return true;
    if (!read_choice(choice, r, problem))
        return false;
    if (r->tool_choice == SERVE_TOOLS_NONE)
        r->tools = NULL;
    if (r->tools != NULL && style_of(server) == NO_CALLS) {
        serve_refuse(problem, 400, "tools",
                     "tools are not supported with the model's chat format; chatml, llama3, "
                     "mistral-v3 and mistral-tekken have them");
        return false;
    }
    return true;
}

/* Required calls ------------------------------------------------------------------------------- */

/* Makes the references of a schema lead to its new place, and appends it to `where`. */
static void move_references(json_t *value, const char *where)
{
    const char *key;
    json_t *member;
    size_t i;
    json_array_foreach(value, i, member) move_references(member, where);
    json_object_foreach(value, key, member)
    {
        const char *target = json_string_value(member);
        if (strcmp(key, "$ref") != 0 || target == NULL || *target != '#') {
            move_references(member, where);
            continue;
        }
        serve_text moved = {0};
        add(&moved, where);
        add(&moved, target + 1);
        json_string_set(member, moved.data);
        serve_text_finish(&moved);
    }
}

/* The schema of a call of one of the tools. */
static json_t *call_schema(const serve_request *r, style s, const char *where)
{
    json_t *calls = json_array();
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *tool = json_array_get(r->tools, i);
        if (r->tool_name != NULL && strcmp(r->tool_name, name_of(tool)) != 0)
            continue;
        const json_t *parameters = json_object_get(json_object_get(tool, "function"), "parameters");
        json_t *arguments =
            parameters != NULL ? json_deep_copy(parameters) : json_pack("{ss}", "type", "object");
        char place[128];
        snprintf(place, sizeof place, "#%s/anyOf/%zu/properties/%s", where, json_array_size(calls),
                 arguments_name(s));
        move_references(arguments, place);
        if (json_object_size(arguments) == 0)
            json_object_set_new(arguments, "type", json_string("object"));
        json_array_append_new(calls, json_pack("{sss{s{ss}so}s[ss]sb}", "type", "object",
                                               "properties", "name", "const", name_of(tool),
                                               arguments_name(s), arguments, "required", "name",
                                               arguments_name(s), "additionalProperties", 0));
    }
    return json_pack("{so}", "anyOf", calls);
}

bool serve_require_tools(const serve_server *server, serve_request *r, serve_problem *problem)
{
    const style s = style_of(server);
    if (r->tools == NULL || r->tool_choice != SERVE_TOOLS_REQUIRED)
        return true;
    json_t *schema = s == MISTRAL ? json_pack("{sss[o]}", "type", "array", "prefixItems",
                                              call_schema(r, s, "/prefixItems/0"))
                                  : call_schema(r, s, "");
    char *text = json_dumps(schema, JSON_COMPACT);
    const bool good = text != NULL &&
                      serve_set_grammar(server, r, TSR_GRAMMAR_JSON_SCHEMA, text, strlen(text),
                                        "tools", problem) &&
                      serve_begin_reply(server, r,
                                        s == HERMES    ? "<tool_call>\n"
                                        : s == MISTRAL ? "[TOOL_CALLS]"
                                                       : "",
                                        problem);
    free(text);
    json_decref(schema);
    return good;
}

/* Messages ------------------------------------------------------------------------------------- */

/* The messages of a conversation with tools, as the library takes them. */
typedef struct conversation {
    style style;
    const serve_request *request;
    tsr_chat_message *messages;
    serve_text *texts;
    size_t count, last_user; /* last_user: of the client's messages */
    bool described;          /* the tools have been */
} conversation;

/* Begins a message, or goes on with the last one if that has the same role and is a result. */
static serve_text *begin(conversation *c, tsr_chat_role role)
{
    if (role == TSR_CHAT_RESULT && c->style == HERMES && c->count > 0 &&
        c->messages[c->count - 1].role == TSR_CHAT_RESULT) {
        add(&c->texts[c->count - 1], "\n");
        return &c->texts[c->count - 1];
    }
    c->messages[c->count] = TSR_INIT(tsr_chat_message);
    c->messages[c->count].role = role;
    serve_text_add(&c->texts[c->count], "", 0);
    return &c->texts[c->count++];
}

static void describe_hermes(const conversation *c, serve_text *text)
{
    add(text, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou "
              "are provided with function signatures within <tools></tools> XML tags:\n<tools>");
    for (size_t i = 0; i < json_array_size(c->request->tools); i++) {
        add(text, "\n");
        add_json(text, json_array_get(c->request->tools, i), 0);
    }
    add(text, "\n</tools>\n\nFor each function call, return a json object with function name and "
              "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
              "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
}

static void describe_llama(const conversation *c, serve_text *text)
{
    add(text, "Given the following functions, please respond with a JSON for a function call with "
              "its proper arguments that best answers the given prompt.\n\nRespond in the format "
              "{\"name\": function name, \"parameters\": dictionary of argument name and its "
              "value}.Do not use variables.\n\n");
    for (size_t i = 0; i < json_array_size(c->request->tools); i++) {
        add_json(text, json_array_get(c->request->tools, i), 4);
        add(text, "\n\n");
    }
}

/* Adds the system's message, or what tools need of it without one. */
static void add_system(conversation *c, const char *given)
{
    if (given == NULL && (c->request->tools == NULL || c->style == MISTRAL))
        return;
    serve_text *text = begin(c, TSR_CHAT_SYSTEM);
    if (c->request->tools != NULL && c->style == LLAMA)
        add(text, "Environment: ipython\n\n");
    if (given != NULL)
        add(text, given);
    if (c->request->tools != NULL && c->style == HERMES) {
        add(text, given != NULL ? "\n\n" : "");
        describe_hermes(c, text);
    }
}

static void add_user(conversation *c, size_t index, const char *given)
{
    if (c->request->tools != NULL && c->style == MISTRAL && index == c->last_user) {
        serve_text *tools = begin(c, TSR_CHAT_TOOLS);
        add_json(tools, c->request->tools, 0);
    }
    serve_text *text = begin(c, TSR_CHAT_USER);
    if (c->request->tools != NULL && c->style == LLAMA && !c->described)
        describe_llama(c, text);
    c->described = true;
    add(text, given);
}

/* Mistral's models know calls by 9 letters and digits: the last ones of the client's id. */
static const char *short_id(const char *id)
{
    const size_t size = strlen(id);
    return size > 9 ? id + size - 9 : id;
}

static bool add_call(const conversation *c, serve_text *text, const json_t *call, size_t index,
                     bool first)
{
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    const char *arguments = json_string_value(json_object_get(function, "arguments"));
    const char *id = json_string_value(json_object_get(call, "id"));
    json_t *object = arguments != NULL ? json_loads(arguments, 0, NULL) : NULL;
    const bool good = is_name(name) && json_is_object(object) &&
                      (id != NULL || c->style != MISTRAL) && (index == 0 || c->style != LLAMA);
    if (good && c->style == HERMES) {
        add(text, first ? "" : "\n");
        add(text, "<tool_call>\n");
    } else if (good && c->style == MISTRAL) {
        add(text, index == 0 ? "[" : ", ");
    }
    if (good) {
        add(text, "{\"name\": \"");
        add(text, name);
        add(text, "\", \"");
        add(text, arguments_name(c->style));
        add(text, "\": ");
        add_json(text, object, 0);
        if (c->style == MISTRAL) {
            add(text, ", \"id\": \"");
            add(text, short_id(id));
            add(text, "\"");
        }
        add(text, "}");
        add(text, c->style == HERMES ? "\n</tool_call>" : "");
    }
    json_decref(object);
    return good;
}

static bool add_calls(conversation *c, size_t index, const json_t *calls, const char *given,
                      serve_problem *problem)
{
    serve_text *text = begin(c, TSR_CHAT_CALLS);
    if (c->style == HERMES)
        add(text, given);
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!add_call(c, text, json_array_get(calls, i), i, i == 0 && text->size == 0)) {
            serve_refuse(problem, 400, "messages",
                         "tool call %zu of message %zu is not {\"id\": …, \"function\": {\"name\": "
                         "…, \"arguments\": …}} with an object in arguments, a string; models of "
                         "llama3 call one tool at a time",
                         i, index);
            return false;
        }
    add(text, c->style == MISTRAL ? "]" : "");
    return true;
}

static void add_result(conversation *c, const json_t *message, const char *given)
{
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    serve_text *text = begin(c, TSR_CHAT_RESULT);
    if (c->style == HERMES) {
        add(text, "<tool_response>\n");
        add(text, given);
        add(text, "\n</tool_response>");
    } else if (c->style == LLAMA) {
        json_t *string = json_string(given);
        add_json(text, string, 0);
        json_decref(string);
    } else {
        add(text, "{\"content\": ");
        add(text, given);
        add(text, ", \"call_id\": \"");
        add(text, id != NULL ? short_id(id) : "");
        add(text, "\"}");
    }
}

static bool add_message(conversation *c, const json_t *message, size_t index,
                        serve_problem *problem)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *calls = json_object_get(message, "tool_calls");
    const bool called = json_is_array(calls) && json_array_size(calls) > 0;
    const json_t *content = json_object_get(message, "content");
    char *given =
        called && (content == NULL || json_is_null(content)) ? NULL : serve_content_text(content);
    bool good = given != NULL || called;
    if (role == NULL)
        role = "(none)";
    if (!good)
        serve_refuse(problem, 400, "messages",
                     "the content of message %zu is neither a string nor a list of texts", index);
    else if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)
        index == 0 ? add_system(c, given) : (void)begin(c, TSR_CHAT_SYSTEM);
    else if (strcmp(role, "user") == 0)
        add_user(c, index, given != NULL ? given : "");
    else if (strcmp(role, "tool") == 0)
        add_result(c, message, given != NULL ? given : "");
    else if (strcmp(role, "assistant") == 0 && called)
        good = add_calls(c, index, calls, given != NULL ? given : "", problem);
    else if (strcmp(role, "assistant") == 0)
        add(begin(c, TSR_CHAT_ASSISTANT), given);
    else
        good = false;
    if (!good && problem->status == 0)
        serve_refuse(
            problem, 400, "messages",
            "message %zu has the role '%.40s'; system, developer, user, assistant and tool "
            "are possible",
            index, role);
    free(given);
    return good;
}

bool serve_has_tools(const serve_request *r, const json_t *list)
{
    bool has = r->tools != NULL;
    for (size_t i = 0; i < json_array_size(list) && !has; i++) {
        const json_t *message = json_array_get(list, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        has = json_array_size(json_object_get(message, "tool_calls")) > 0 ||
              (role != NULL && strcmp(role, "tool") == 0);
    }
    return has;
}

bool serve_encode_tools(const serve_server *server, const json_t *list, serve_request *r,
                        int32_t **ids, uint64_t *id_count, serve_problem *problem)
{
    const size_t count = json_array_size(list);
    conversation c = {.style = style_of(server), .request = r};
    if (c.style == NO_CALLS) {
        serve_refuse(problem, 400, "messages",
                     "calls of tools are not supported with the model's chat format");
        return false;
    }
    c.messages = cli_alloc(2 * count + 2, sizeof *c.messages);
    c.texts = cli_alloc(2 * count + 2, sizeof *c.texts);
    const char *first = json_string_value(json_object_get(json_array_get(list, 0), "role"));
    for (size_t i = 0; i < count; i++) {
        const char *role = json_string_value(json_object_get(json_array_get(list, i), "role"));
        if (role != NULL && strcmp(role, "user") == 0)
            c.last_user = i;
    }
    if (first == NULL || (strcmp(first, "system") != 0 && strcmp(first, "developer") != 0))
        add_system(&c, NULL);
    bool good = true;
    for (size_t i = 0; i < count && good; i++)
        good = add_message(&c, json_array_get(list, i), i, problem);
    for (size_t i = 0; i < c.count; i++) {
        c.messages[i].text = c.texts[i].data;
        c.messages[i].size_bytes = c.texts[i].size;
    }
    if (good &&
        tsr_chat_encode(server->tokenizer,
                        tsr_chat_params(.format = inference_chosen.format, .messages = c.messages,
                                        .count = (int)c.count, .begin_reply = true),
                        ids, id_count) != TSR_OK) {
        serve_refuse(problem, 400, "messages", "%s", tsr_last_error());
        good = false;
    }
    for (size_t i = 0; i < c.count; i++)
        serve_text_finish(&c.texts[i]);
    free(c.texts);
    free(c.messages);
    return good;
}

/* Replies -------------------------------------------------------------------------------------- */

/* Returns where calls may begin in a text, which may go on. */
static size_t calls_at(style s, const serve_text *text)
{
    size_t start = 0;
    if (s == HERMES) {
        const char *found = text->size > 0 ? strstr(text->data, begin_call) : NULL;
        if (found != NULL)
            return (size_t)(found - text->data);
        for (size_t size = sizeof begin_call - 2; size > 0; size--)
            if (text->size >= size && memcmp(text->data + text->size - size, begin_call, size) == 0)
                return text->size - size;
        return text->size;
    }
    while (start < text->size && strchr(" \n\t", text->data[start]) != NULL)
        start++;
    return start == text->size || text->data[start] == (s == LLAMA ? '{' : '[') ? 0 : text->size;
}

size_t serve_hold_calls(const serve_server *server, serve_choice *c, const char *text, size_t size)
{
    const serve_request *r = c->request;
    const style s = style_of(server);
    serve_text_add(&c->held, text, size);
    if (r->tool_choice == SERVE_TOOLS_REQUIRED || (c->plain && s != HERMES))
        return c->plain ? c->held.size : 0;
    const size_t certain = calls_at(s, &c->held);
    c->plain = c->plain || certain > 0;
    return certain;
}

/* Adds a call to c->calls if `value` is one. `known`: only of a tool that there is. */
static bool take_call(const serve_server *server, serve_choice *c, const json_t *value, bool known)
{
    const serve_request *r = c->request;
    const style s = style_of(server);
    const char *name = json_string_value(json_object_get(value, "name"));
    const json_t *arguments = json_object_get(value, "arguments");
    if (arguments == NULL)
        arguments = json_object_get(value, "parameters");
    if (!is_name(name) || !json_is_object(arguments) ||
        (known && find_tool(r->tools, name) == NULL))
        return false;
    char id[48], *text = json_dumps(arguments, JSON_COMPACT | JSON_REAL_PRECISION(17));
    const char *random = strchr(r->id, '-') + 1;
    if (c->calls == NULL)
        c->calls = json_array();
    const int number = (int)json_array_size(c->calls);
    if (s == MISTRAL)
        snprintf(id, sizeof id, "%.5s%02d%02d", random, c->index % 100, number % 100);
    else
        snprintf(id, sizeof id, "call_%.24s%02d%02d", random, c->index % 100, number % 100);
    json_array_append_new(c->calls,
                          json_pack("{sssss{ssss}}", "id", id, "type", "function", "function",
                                    "name", name, "arguments", text != NULL ? text : "{}"));
    free(text);
    return true;
}

/* Takes calls from an object, or from a list of objects, at the start of a text. */
static bool take_json(const serve_server *server, serve_choice *c, const char *text, size_t size,
                      bool known)
{
    json_t *value = json_loadb(text, size, JSON_DISABLE_EOF_CHECK, NULL);
    bool good = value != NULL;
    if (json_is_array(value)) {
        good = json_array_size(value) > 0;
        for (size_t i = 0; i < json_array_size(value) && good; i++)
            good = take_call(server, c, json_array_get(value, i), known);
    } else if (value != NULL) {
        good = take_call(server, c, value, known);
    }
    json_decref(value);
    return good;
}

bool serve_take_calls(const serve_server *server, serve_choice *c)
{
    const style s = style_of(server);
    const bool required = c->request->tool_choice == SERVE_TOOLS_REQUIRED;
    bool good = c->held.size > 0;
    if (good && (s != HERMES || required)) {
        good = take_json(server, c, c->held.data, c->held.size, true);
    } else {
        const char *at = good ? strstr(c->held.data, begin_call) : NULL;
        good = at != NULL;
        for (; at != NULL && good; at = strstr(at, begin_call)) {
            at += sizeof begin_call - 1;
            const char *end = strstr(at, end_call);
            good = take_json(server, c, at, end != NULL ? (size_t)(end - at) : strlen(at), false);
        }
    }
    if (!good) {
        json_decref(c->calls);
        c->calls = NULL;
    }
    return good;
}
