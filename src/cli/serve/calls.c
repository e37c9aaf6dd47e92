/* What a reply consists of: the answer, the reasoning, and calls of tools, of which the arguments
 * are given out while they are generated. */
#include <stdlib.h>
#include <string.h>

#include "cli/serve/tools.h"

static const char begin_call[] = "<tool_call>", end_call[] = "</tool_call>";
static const char functions[] = "functions.";

/* Where the text is that has been read. */
enum step {
    IN_TEXT,      /* in the answer, where calls may begin */
    IN_HEAD,      /* before the arguments of a call, whose beginning is still held */
    IN_WHOLE,     /* in a call of another order, which is read when it is complete */
    IN_ARGUMENTS, /* in the arguments, an object */
    AFTER_ARGUMENTS,
    AFTER_CALL,
    IN_REST /* in text that is given out, or, after calls, in what follows them */
};

/* Texts ---------------------------------------------------------------------------------------- */

static void give_text(const serve_server *server, serve_choice *c, tsr_text_channel channel,
                      const char *text, size_t size)
{
    if (size == 0)
        return;
    if (c->request->stream)
        serve_event_text(server, c, channel, text, size);
    else
        cli_text_add(channel == TSR_TEXT_REASONING ? &c->reasoning : &c->answer, text, size);
}

static void drop(cli_text *text, size_t size)
{
    text->size -= size;
    if (text->data != NULL)
        memmove(text->data, text->data + size, text->size + 1);
}

/* Gives out the first bytes of the text that is held. */
static void give_held(const serve_server *server, serve_choice *c, size_t size)
{
    give_text(server, c, TSR_TEXT_ANSWER, c->held.data, size);
    drop(&c->held, size);
}

/* Calls ---------------------------------------------------------------------------------------- */

/* Writes the id of a call, which is unique in its reply. Mistral's ids have 9 letters and digits: 5
 * are the request's, and 4 the number of the call among those of all choices. */
static void name_call(const serve_server *server, const serve_choice *c, size_t number, char *id,
                      size_t size)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const char *random = strchr(c->request->id, '-') + 1;
    if (!cli_tools_have_short_ids(serve_tool_style(server))) {
        snprintf(id, size, "call_%.22s%03d%03zu", random, c->index, number);
        return;
    }
    size_t left = number * (size_t)c->request->choice_count + (size_t)c->index;
    snprintf(id, size, "%.5s0000", random);
    for (int i = 8; i >= 5; i--, left /= 62)
        id[i] = digits[left % 62];
}

static void open_call(const serve_server *server, serve_choice *c, const char *name)
{
    char id[64];
    if (c->calls == NULL)
        c->calls = json_array();
    name_call(server, c, json_array_size(c->calls), id, sizeof id);
    json_array_append_new(c->calls, json_pack("{sssss{ssss}}", "id", id, "type", "function",
                                              "function", "name", name, "arguments", ""));
    c->call_open = true;
    c->depth = 0;
    c->in_string = c->escaped = false;
    if (c->request->stream)
        serve_event_call(server, c);
}

static void add_arguments(const serve_server *server, serve_choice *c, const char *text,
                          size_t size)
{
    if (size == 0)
        return;
    cli_text_add(&c->arguments, text, size);
    if (c->request->stream)
        serve_event_arguments(server, c, text, size);
}

/* Ends the call that is open, whose arguments may be incomplete. */
static void close_call(serve_choice *c)
{
    if (!c->call_open)
        return;
    c->call_open = false;
    const json_t *last = json_array_get(c->calls, json_array_size(c->calls) - 1);
    json_object_set_new(
        json_object_get(last, "function"), "arguments",
        json_stringn(c->arguments.data != NULL ? c->arguments.data : "", c->arguments.size));
    c->arguments.size = 0;
}

/* Returns whether a text that may be a call is one: without marks, only calls of tools that there
 * are. */
static bool may_call(const serve_choice *c, cli_tool_style style, const char *name)
{
    return style == CLI_TOOLS_HERMES || serve_find_tool(c->request->tools, name) != NULL;
}

/* Takes a call that has been read as a whole. Returns whether it is one. */
static bool take_call(const serve_server *server, serve_choice *c, const json_t *value)
{
    const char *name = json_string_value(json_object_get(value, "name"));
    const json_t *arguments = json_object_get(value, "arguments");
    if (arguments == NULL)
        arguments = json_object_get(value, "parameters");
    if (!serve_is_tool_name(name) || !json_is_object(arguments) ||
        !may_call(c, serve_tool_style(server), name))
        return false;
    char *text = json_dumps(arguments, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (text == NULL)
        return false;
    open_call(server, c, name);
    add_arguments(server, c, text, strlen(text));
    close_call(c);
    free(text);
    return true;
}

/* Takes the calls in an object, or in a list of objects, at the start of a text. */
static bool take_json(const serve_server *server, serve_choice *c, const char *text, size_t size)
{
    json_t *value = json_loadb(text, size, JSON_DISABLE_EOF_CHECK, NULL);
    bool good = json_is_object(value) && take_call(server, c, value);
    for (size_t i = 0; i < json_array_size(value) && (i == 0 || good); i++)
        good = take_call(server, c, json_array_get(value, i));
    json_decref(value);
    return good;
}

/* Beginnings of calls -------------------------------------------------------------------------- */

/* A place in a text that goes on later. */
typedef struct cursor {
    const char *at, *end;
    bool fits; /* so far */
} cursor;

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void skip_spaces(cursor *k)
{
    while (k->at < k->end && is_space(*k->at))
        k->at++;
}

/* Reads these characters, after spaces, as far as the text goes. */
static void read_characters(cursor *k, const char *wanted)
{
    skip_spaces(k);
    for (; *wanted != '\0' && k->at < k->end && k->fits; wanted++)
        k->fits = *k->at++ == *wanted;
}

/* Reads {"name": "NAME", "arguments": up to the object's brace, which follows at k->at. Returns
 * whether all of it is there; k->fits becomes false if the text is something else. */
static bool read_head(cursor *k, char name[SERVE_MOST_TOOL_NAME + 1])
{
    size_t size = 0;
    read_characters(k, "{");
    read_characters(k, "\"name\"");
    read_characters(k, ":");
    read_characters(k, "\"");
    while (k->fits && k->at < k->end && *k->at != '"') {
        k->fits = size < SERVE_MOST_TOOL_NAME;
        if (k->fits)
            name[size++] = *k->at++;
    }
    name[size] = '\0';
    read_characters(k, "\"");
    read_characters(k, ",");
    skip_spaces(k);
    const bool is_parameters = k->end - k->at > 1 && k->at[1] == 'p';
    read_characters(k, is_parameters ? "\"parameters\"" : "\"arguments\"");
    read_characters(k, ":");
    skip_spaces(k);
    if (!k->fits || k->at == k->end)
        return false;
    k->fits = *k->at == '{' && serve_is_tool_name(name);
    return k->fits;
}

/* Returns the size of what comes before the object of a call. */
static size_t mark_size(cli_tool_style style)
{
    return style == CLI_TOOLS_HERMES ? sizeof begin_call - 1 : style == CLI_TOOLS_MISTRAL ? 1 : 0;
}

/* Returns how much of a text is certainly no call; the rest may be a mark that begins one. */
static size_t size_before_mark(const cli_text *text)
{
    const char *found = strstr(text->data, begin_call);
    if (found != NULL)
        return (size_t)(found - text->data);
    for (size_t size = sizeof begin_call - 2; size > 0; size--)
        if (text->size >= size && memcmp(text->data + text->size - size, begin_call, size) == 0)
            return text->size - size;
    return text->size;
}

/* Steps ---------------------------------------------------------------------------------------- */
/* Each reads some of the held text, and returns whether the next one can go on. */

static bool read_text(const serve_server *server, serve_choice *c, cli_tool_style style)
{
    if (style == CLI_TOOLS_HERMES) {
        give_held(server, c, size_before_mark(&c->held));
        if (c->held.size < sizeof begin_call - 1)
            return false;
        c->step = IN_HEAD;
        return true;
    }
    size_t start = 0;
    while (start < c->held.size && is_space(c->held.data[start]))
        start++;
    if (start == c->held.size)
        return false;
    if (c->held.data[start] != (style == CLI_TOOLS_LLAMA ? '{' : '[')) {
        c->step = IN_REST;
        return true;
    }
    c->spaces = start;
    c->step = IN_HEAD;
    return true;
}

static bool read_call_head(const serve_server *server, serve_choice *c, cli_tool_style style)
{
    char name[SERVE_MOST_TOOL_NAME + 1];
    const char *end = c->held.data + c->held.size;
    const size_t mark = c->spaces + mark_size(style);
    if (c->held.size < mark)
        return false;
    cursor k = {.at = c->held.data + mark, .end = end, .fits = true};
    const bool complete = read_head(&k, name);
    if (!complete && k.fits)
        return false;
    if (!complete || !may_call(c, style, name)) {
        c->step = IN_WHOLE;
        return true;
    }
    open_call(server, c, name);
    drop(&c->held, (size_t)(k.at - c->held.data));
    c->spaces = 0;
    c->step = IN_ARGUMENTS;
    return true;
}

/* Follows JSON up to the bracket after which nothing is open. Returns how many bytes were read, and
 * sets *ended. */
static size_t read_value(serve_choice *c, bool *ended)
{
    size_t i = 0;
    for (*ended = false; i < c->held.size && !*ended; i++) {
        const char one = c->held.data[i];
        if (c->in_string) {
            c->in_string = c->escaped || one != '"';
            c->escaped = !c->escaped && one == '\\';
            continue;
        }
        c->in_string = one == '"';
        c->depth += one == '{' || one == '[';
        c->depth -= one == '}' || one == ']';
        *ended = c->depth == 0 && (one == '}' || one == ']');
    }
    return i;
}

static bool read_arguments(const serve_server *server, serve_choice *c)
{
    bool ended;
    const size_t size = read_value(c, &ended);
    add_arguments(server, c, c->held.data, size);
    drop(&c->held, size);
    if (!ended)
        return false;
    close_call(c);
    c->step = AFTER_ARGUMENTS;
    c->depth = 1; /* the object of the call is open */
    return true;
}

/* Skips other members of the call's object, such as Mistral's id. */
static bool read_after_arguments(serve_choice *c)
{
    bool ended;
    drop(&c->held, read_value(c, &ended));
    c->step = ended ? AFTER_CALL : AFTER_ARGUMENTS;
    return ended;
}

static bool read_after_call(serve_choice *c, cli_tool_style style)
{
    size_t start = 0;
    while (start < c->held.size && is_space(c->held.data[start]))
        start++;
    drop(&c->held, start);
    if (c->held.size == 0)
        return false;
    if (style == CLI_TOOLS_MISTRAL && c->held.data[0] == ',') {
        c->step = IN_HEAD;
        return true;
    }
    if (style != CLI_TOOLS_HERMES) {
        c->step = IN_REST;
        return true;
    }
    const size_t size = c->held.size < sizeof end_call - 1 ? c->held.size : sizeof end_call - 1;
    if (memcmp(c->held.data, end_call, size) != 0) {
        c->step = IN_TEXT;
        return true;
    }
    if (size < sizeof end_call - 1)
        return false;
    drop(&c->held, size);
    return true; /* to skip the spaces after the mark */
}

/* Reads a call of Hermes whose members have another order, when its end mark has come. */
static bool read_whole(const serve_server *server, serve_choice *c, cli_tool_style style)
{
    const char *end = style == CLI_TOOLS_HERMES ? strstr(c->held.data, end_call) : NULL;
    if (end == NULL)
        return false;
    const size_t mark = sizeof begin_call - 1, size = (size_t)(end - c->held.data);
    if (take_json(server, c, c->held.data + mark, size - mark)) {
        drop(&c->held, size);
        c->step = AFTER_CALL;
    } else {
        give_held(server, c, size + sizeof end_call - 1);
        c->step = IN_TEXT;
    }
    return true;
}

static void read_held(const serve_server *server, serve_choice *c)
{
    const cli_tool_style style = serve_tool_style(server);
    for (bool goes_on = true; goes_on && c->held.size > 0;)
        switch ((enum step)c->step) {
        case IN_TEXT:
            goes_on = read_text(server, c, style);
            break;
        case IN_HEAD:
            goes_on = read_call_head(server, c, style);
            break;
        case IN_WHOLE:
            goes_on = read_whole(server, c, style);
            break;
        case IN_ARGUMENTS:
            goes_on = read_arguments(server, c);
            break;
        case AFTER_ARGUMENTS:
            goes_on = read_after_arguments(c);
            break;
        case AFTER_CALL:
            goes_on = read_after_call(c, style);
            break;
        case IN_REST: /* Llama's and Mistral's models call nothing after text, and reverse */
            if (c->calls == NULL)
                give_held(server, c, c->held.size);
            c->held.size = 0;
            break;
        }
}

/* Replies -------------------------------------------------------------------------------------- */

/* Text of a call that is apart from the answer, or of harmony to the user before calls. */
static void add_commentary(const serve_server *server, serve_choice *c, const char *recipient,
                           const char *text, size_t size)
{
    const bool harmony = serve_tool_style(server) == CLI_TOOLS_HARMONY;
    const size_t prefix = sizeof functions - 1;
    const char *name = strncmp(recipient, functions, prefix) == 0 ? recipient + prefix : recipient;
    if (*recipient == '\0') {
        give_text(server, c, TSR_TEXT_ANSWER, text, size);
        c->preamble = true;
        return;
    }
    if (c->request->tools == NULL || !serve_is_tool_name(name))
        return; /* to a tool that nobody has described */
    cli_text_add(&c->held, text, size);
    for (bool ended = true; ended && c->held.size > 0;) {
        if (!c->call_open && is_space(c->held.data[0])) {
            drop(&c->held, 1);
            continue;
        }
        if (!c->call_open && c->held.data[0] != '{' && !harmony) {
            c->held.size = 0; /* Mistral's models write nothing after the arguments */
            return;
        }
        if (!c->call_open)
            open_call(server, c, name);
        ended = read_arguments(server, c);
    }
}

void serve_reply_add(const serve_server *server, serve_choice *c, const char *text, size_t size)
{
    const tsr_text_channel channel = tsr_text_stream_channel(c->stream);
    if (size == 0)
        return;
    if (channel == TSR_TEXT_COMMENTARY) {
        add_commentary(server, c, tsr_text_stream_recipient(c->stream), text, size);
        return;
    }
    if (channel == TSR_TEXT_ANSWER && c->request->tools != NULL &&
        !cli_tools_name_calls(serve_tool_style(server))) {
        cli_text_add(&c->held, text, size);
        read_held(server, c);
        return;
    }
    if (channel == TSR_TEXT_ANSWER && c->preamble) {
        give_text(server, c, channel, "\n\n", 2);
        c->preamble = false;
    }
    give_text(server, c, channel, text, size);
}

bool serve_reply_end(const serve_server *server, serve_choice *c, bool whole)
{
    const cli_tool_style style = serve_tool_style(server);
    const bool complete = whole || !c->call_open;
    const size_t mark = style == CLI_TOOLS_HERMES                        ? sizeof begin_call - 1
                        : style == CLI_TOOLS_MISTRAL && c->calls != NULL ? 1
                                                                         : 0;
    close_call(c);
    const bool read = (c->step == IN_HEAD || c->step == IN_WHOLE) && c->held.size > mark &&
                      take_json(server, c, c->held.data + mark, c->held.size - mark);
    if (!read && c->step <= IN_WHOLE && (c->calls == NULL || style == CLI_TOOLS_HERMES))
        give_held(server, c, c->held.size);
    c->held.size = 0;
    return c->calls != NULL && complete;
}
