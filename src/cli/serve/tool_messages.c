/* Conversations with tools, or with reasoning that the prompt keeps: the messages in which a
 * request's tools, calls and results become parts of the prompt. Most of their texts are those of
 * cli/lib/tools.h. */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/serve/tools.h"

/* The messages of a conversation with tools, as the library takes them. */
typedef struct conversation {
    cli_tool_style style;
    tsr_chat_format format;
    const serve_request *request;
    const json_t *list; /* the client's messages */
    tsr_chat_message *messages;
    cli_text *texts;
    size_t count, capacity;
    size_t last_user;   /* of the client's messages */
    size_t last_answer; /* the last one of the assistant without calls; 0: there is none */
    bool described;     /* the tools have been */
    bool thinks;        /* the tokenizer has the format's tokens around the reasoning */
    bool *taken;        /* by message of the client: it is a result that follows its call already */
    const char *last_call; /* the name of the last call of the last message that had some */
    json_t *call_names;    /* the names of that message's calls, by their ids */
} conversation;

/* Begins a message, or goes on with the last one if that has the same role and is a result. */
static cli_text *begin(conversation *c, tsr_chat_role role)
{
    if (role == TSR_CHAT_RESULT && cli_tool_results_join(c->style) && c->count > 0 &&
        c->messages[c->count - 1].role == TSR_CHAT_RESULT)
        return &c->texts[c->count - 1];
    if (c->count == c->capacity) {
        c->capacity = 2 * c->capacity + 16;
        c->messages = cli_resize(c->messages, c->capacity, sizeof *c->messages);
        c->texts = cli_resize(c->texts, c->capacity, sizeof *c->texts);
    }
    c->messages[c->count] = TSR_INIT(tsr_chat_message);
    c->messages[c->count].role = role;
    c->texts[c->count] = (cli_text){0};
    cli_text_add(&c->texts[c->count], "", 0);
    return &c->texts[c->count++];
}

/* Adds the system's message, or what tools need of it without one. */
static void add_system(conversation *c, const char *given)
{
    const bool has_tools = c->request->tools != NULL, harmony = c->style == CLI_TOOLS_HARMONY;
    if (given == NULL && (!has_tools || cli_tools_have_short_ids(c->style)))
        return;
    cli_text *text = begin(c, has_tools && harmony ? TSR_CHAT_TOOLS : TSR_CHAT_SYSTEM);
    if (has_tools && harmony) {
        if (given != NULL && *given != '\0') {
            cli_text_print(text, "# Instructions\n\n");
            cli_text_print(text, given);
            cli_text_print(text, "\n\n");
        }
        cli_text_print(text, "# Tools\n\n");
        serve_describe_types(text, c->request->tools);
        return;
    }
    if (has_tools)
        cli_tools_in_system(c->style, c->request->tools, given, text);
    else
        cli_text_print(text, given);
}

static void add_user(conversation *c, size_t index, const char *given)
{
    if (c->request->tools != NULL &&
        cli_tools_before_user(c->style, !c->described, index == c->last_user))
        cli_text_add_spaced(begin(c, TSR_CHAT_TOOLS), c->request->tools, 0);
    cli_text *text = begin(c, TSR_CHAT_USER);
    if (c->request->tools != NULL && !c->described)
        cli_tools_in_user(c->style, c->request->tools, text);
    c->described = true;
    cli_text_print(text, given);
}

static const char *call_name(const json_t *call)
{
    return json_string_value(json_object_get(json_object_get(call, "function"), "name"));
}

/* Reads the arguments of a call, which are a string. Returns NULL if something of the call is
 * wrong. */
static json_t *read_call(const conversation *c, const json_t *call, size_t index)
{
    const json_t *function = json_object_get(call, "function");
    const char *arguments = json_string_value(json_object_get(function, "arguments"));
    const char *id = json_string_value(json_object_get(call, "id"));
    json_t *object = arguments != NULL ? json_loads(arguments, 0, NULL) : NULL;
    if (serve_is_tool_name(call_name(call)) && json_is_object(object) &&
        (id != NULL || !cli_tools_need_ids(c->style)) &&
        (index == 0 || c->style != CLI_TOOLS_LLAMA))
        return object;
    json_decref(object);
    return NULL;
}

static bool refuse_call(size_t number, size_t index, serve_problem *problem)
{
    serve_refuse(problem, 400, "messages",
                 "tool call %zu of message %zu is not {\"id\": …, \"function\": {\"name\": …, "
                 "\"arguments\": …}} with an object in arguments, a string; models of llama3 call "
                 "one tool at a time",
                 number, index);
    return false;
}

static const char *reasoning_of(const json_t *message)
{
    const char *reasoning = json_string_value(json_object_get(message, "reasoning_content"));
    return reasoning != NULL ? reasoning : "";
}

/* Adds what the model thought before a message, if its template keeps that: Qwen's since the last
 * message of the user, that of Mistral's models always. Returns whether something was added. */
static bool add_reasoning(conversation *c, const json_t *message, size_t index)
{
    const char *text = reasoning_of(message);
    size_t size = strlen(text);
    const bool kept =
        (c->style == CLI_TOOLS_HERMES && index > c->last_user) || c->style == CLI_TOOLS_MISTRAL_V13;
    for (; c->style == CLI_TOOLS_HERMES && *text == '\n'; text++)
        size--;
    while (c->style == CLI_TOOLS_HERMES && size > 0 && text[size - 1] == '\n')
        size--;
    if (!kept || !c->thinks || size == 0)
        return false;
    cli_text_add(begin(c, TSR_CHAT_REASONING), text, size);
    return true;
}

/* Adds a reply without calls. */
static void add_answer(conversation *c, const json_t *message, size_t index, const char *given)
{
    if (add_reasoning(c, message, index) && c->style == CLI_TOOLS_HERMES)
        given += strspn(given, "\n");
    cli_text_print(begin(c, TSR_CHAT_ASSISTANT), given);
}

static bool add_calls(conversation *c, size_t index, const json_t *message, const char *given,
                      serve_problem *problem)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (add_reasoning(c, message, index))
        given += strspn(given, "\n");
    cli_text *text = begin(c, TSR_CHAT_CALLS);
    if (c->style == CLI_TOOLS_HERMES)
        cli_text_print(text, given);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        json_t *arguments = read_call(c, call, i);
        if (arguments == NULL)
            return refuse_call(i, index, problem);
        cli_tool_call(c->style, i, call_name(call), json_string_value(json_object_get(call, "id")),
                      arguments, text);
        json_decref(arguments);
    }
    cli_tool_calls_end(c->style, text);
    return true;
}

static void add_result(conversation *c, const json_t *message, const char *given)
{
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    cli_tool_result(c->style, id, given, begin(c, TSR_CHAT_RESULT));
    if (cli_tools_name_calls(c->style))
        c->messages[c->count - 1].call_id = id != NULL ? cli_tool_short_id(id) : "";
}

/* Adds each call of a message as one of its own, whose text are the arguments. Mistral's templates
 * with ids leave out the text before calls. */
static bool add_named_calls(conversation *c, size_t index, const json_t *message, const char *given,
                            serve_problem *problem)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    add_reasoning(c, message, index);
    if (cli_tools_have_preambles(c->style) && *given != '\0')
        cli_text_print(begin(c, TSR_CHAT_PREAMBLE), given);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        const char *id = json_string_value(json_object_get(call, "id"));
        json_t *arguments = read_call(c, call, i);
        if (arguments == NULL)
            return refuse_call(i, index, problem);
        cli_text_add_spaced(begin(c, TSR_CHAT_CALLS), arguments, 0);
        c->messages[c->count - 1].tool = call_name(call);
        c->messages[c->count - 1].call_id = id != NULL ? cli_tool_short_id(id) : "";
        json_decref(arguments);
    }
    return true;
}

/* Harmony --------------------------------------------------------------------------------------
 */

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own != NULL && strcmp(own, role) == 0;
}

/* Adds the result of a call, and names the tool. */
static void add_named_result(conversation *c, const json_t *message, const char *tool)
{
    char *given = serve_content_text(json_object_get(message, "content"));
    add_result(c, message, given != NULL ? given : "");
    c->messages[c->count - 1].tool = tool;
    free(given);
}

/* Returns the indices of the results that follow message `index` directly, by the ids of their
 * calls, for json_decref. The first result of a call counts. */
static json_t *results_after(const conversation *c, size_t index)
{
    json_t *results = json_object();
    for (size_t i = index + 1; has_role(json_array_get(c->list, i), "tool"); i++) {
        const char *id =
            json_string_value(json_object_get(json_array_get(c->list, i), "tool_call_id"));
        if (id != NULL && json_object_get(results, id) == NULL)
            json_object_set_new(results, id, json_integer((json_int_t)i));
    }
    return results;
}

/* Keeps the names of a message's calls for the results that follow. The first call of an id counts.
 */
static void keep_names(conversation *c, const json_t *calls)
{
    json_decref(c->call_names);
    c->call_names = json_object();
    c->last_call = call_name(json_array_get(calls, json_array_size(calls) - 1));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        const char *id = json_string_value(json_object_get(call, "id"));
        if (id != NULL && json_object_get(c->call_names, id) == NULL)
            json_object_set(c->call_names, id,
                            json_object_get(json_object_get(call, "function"), "name"));
    }
}

/* The name of the tool that has given a result: that of the call with its id, or of the last one.
 */
static const char *name_of_result(const conversation *c, const json_t *message)
{
    const char *id = json_string_value(json_object_get(message, "tool_call_id"));
    const char *name = id != NULL ? json_string_value(json_object_get(c->call_names, id)) : NULL;
    return name != NULL ? name : c->last_call != NULL ? c->last_call : "";
}

/* Adds calls. A model calls one tool at a time, so each of several calls is followed by its result.
 */
static bool add_calls_with_results(conversation *c, size_t index, const json_t *calls,
                                   const json_t *results, serve_problem *problem)
{
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        json_t *arguments = read_call(c, call, i);
        const char *id = json_string_value(json_object_get(call, "id"));
        const size_t result = json_array_size(calls) > 1 && id != NULL
                                  ? (size_t)json_integer_value(json_object_get(results, id))
                                  : 0;
        if (arguments == NULL)
            return refuse_call(i, index, problem);
        cli_text_add_spaced(begin(c, TSR_CHAT_CALLS), arguments, 0);
        c->messages[c->count - 1].tool = call_name(call);
        json_decref(arguments);
        if (result > 0) {
            add_named_result(c, json_array_get(c->list, result), call_name(call));
            c->taken[result] = true;
        } else if (i + 1 < json_array_size(calls)) {
            serve_refuse(problem, 400, "messages",
                         "no message of the role tool with the id of tool call %zu follows message "
                         "%zu",
                         i, index);
            return false;
        }
    }
    return true;
}

/* Adds a message with calls. Its reasoning is needed as long as no answer has come. */
static bool add_messages_to_tools(conversation *c, size_t index, const json_t *message,
                                  const char *given, serve_problem *problem)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (*reasoning_of(message) != '\0' && c->last_answer <= index)
        cli_text_print(begin(c, TSR_CHAT_REASONING), reasoning_of(message));
    if (*given != '\0')
        cli_text_print(begin(c, TSR_CHAT_PREAMBLE), given);
    keep_names(c, calls);
    json_t *results = results_after(c, index);
    const bool good = add_calls_with_results(c, index, calls, results, problem);
    json_decref(results);
    return good;
}

/* Messages ------------------------------------------------------------------------------------- */

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
    else if (strcmp(role, "tool") == 0 && c->style == CLI_TOOLS_HARMONY)
        add_named_result(c, message, name_of_result(c, message));
    else if (strcmp(role, "tool") == 0)
        add_result(c, message, given != NULL ? given : "");
    else if (strcmp(role, "assistant") == 0 && called && c->style == CLI_TOOLS_HARMONY)
        good = add_messages_to_tools(c, index, message, given != NULL ? given : "", problem);
    else if (strcmp(role, "assistant") == 0 && called && cli_tools_name_calls(c->style))
        good = add_named_calls(c, index, message, given != NULL ? given : "", problem);
    else if (strcmp(role, "assistant") == 0 && called)
        good = add_calls(c, index, message, given != NULL ? given : "", problem);
    else if (strcmp(role, "assistant") == 0)
        add_answer(c, message, index, given);
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

bool serve_has_parts(const serve_server *server, const serve_request *r, const json_t *list)
{
    const cli_tool_style style = serve_tool_style(server);
    bool has = r->tools != NULL;
    for (size_t i = 0; i < json_array_size(list) && !has; i++) {
        const json_t *message = json_array_get(list, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        has = json_array_size(json_object_get(message, "tool_calls")) > 0 ||
              (role != NULL && strcmp(role, "tool") == 0) ||
              (style == CLI_TOOLS_MISTRAL_V13 && *reasoning_of(message) != '\0');
    }
    return has;
}

bool serve_encode_parts(const serve_server *server, const json_t *list, serve_request *r,
                        int32_t **ids, uint64_t *id_count, serve_problem *problem)
{
    const size_t count = json_array_size(list);
    conversation c = {.style = serve_tool_style(server),
                      .format = serve_format(server),
                      .request = r,
                      .list = list};
    c.thinks = inference_has_reasoning(server->tokenizer, c.format);
    /* Harmony's header of an answer without reasoning would leave no place for a call. */
    const tsr_chat_reasoning reasoning =
        c.style == CLI_TOOLS_HARMONY && r->tools != NULL && r->reasoning == TSR_CHAT_REASONING_NONE
            ? TSR_CHAT_REASONING_LOW
            : r->reasoning;
    if (c.style == CLI_TOOLS_NONE) {
        serve_refuse(problem, 400, "messages",
                     "calls of tools are not supported with the model's chat format");
        return false;
    }
    c.taken = cli_alloc(count + 1, sizeof *c.taken);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(list, i);
        c.last_user = has_role(one, "user") ? i : c.last_user;
        if (has_role(one, "assistant") && json_array_size(json_object_get(one, "tool_calls")) == 0)
            c.last_answer = i;
    }
    if (!has_role(json_array_get(list, 0), "system") &&
        !has_role(json_array_get(list, 0), "developer"))
        add_system(&c, NULL);
    bool good = true;
    for (size_t i = 0; i < count && good; i++)
        good = c.taken[i] || add_message(&c, json_array_get(list, i), i, problem);
    size_t bytes = 0;
    for (size_t i = 0; i < c.count; i++) {
        c.messages[i].text = c.texts[i].data;
        c.messages[i].size_bytes = c.texts[i].size;
        bytes += c.texts[i].size;
    }
    good = good && serve_check_bytes(server, bytes, "messages", problem);
    if (good && tsr_chat_encode(server->tokenizer,
                                tsr_chat_params(.format = inference_chosen.format,
                                                .messages = c.messages, .count = (int)c.count,
                                                .begin_reply = true, .reasoning = reasoning),
                                ids, id_count) != TSR_OK) {
        serve_refuse(problem, 400, "messages", "%s%s", tsr_last_error(),
                     c.count != count ? " (counted with the messages that tools add)" : "");
        good = false;
    }
    for (size_t i = 0; i < c.count; i++)
        cli_text_free(&c.texts[i]);
    json_decref(c.call_names);
    free(c.taken);
    free(c.texts);
    free(c.messages);
    return good;
}
