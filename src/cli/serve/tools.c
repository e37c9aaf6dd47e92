/* The tools of a request: its parameters, and the grammar of a call that it requires. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/serve/tools.h"

cli_tool_style serve_tool_style(const serve_server *server)
{
    return cli_tool_style_of(serve_format(server));
}

const char *serve_tool_arguments(cli_tool_style style)
{
    return style == CLI_TOOLS_LLAMA ? "parameters" : "arguments";
}

/* Parameters ----------------------------------------------------------------------------------- */

const char *serve_tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

bool serve_is_tool_name(const char *name)
{
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t size = name != NULL ? strlen(name) : 0;
    return size >= 1 && size <= SERVE_MOST_TOOL_NAME && strspn(name, characters) == size;
}

const json_t *serve_find_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; name != NULL && i < json_array_size(tools); i++)
        if (strcmp(serve_tool_name(json_array_get(tools, i)), name) == 0)
            return json_array_get(tools, i);
    return NULL;
}

/* Returns the number of properties of a schema, nested ones included. */
static size_t count_properties(json_t *schema)
{
    size_t count = json_object_size(json_object_get(schema, "properties")), i;
    const char *key;
    json_t *member;
    json_array_foreach(schema, i, member) count += count_properties(member);
    json_object_foreach(schema, key, member) count += count_properties(member);
    return count;
}

static bool check_properties(const json_t *tools, serve_problem *problem)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const size_t count = count_properties(json_object_get(function, "parameters"));
        if (count > SERVE_MOST_PROPERTIES) {
            serve_refuse(problem, 400, "tools",
                         "the parameters of tool %zu have %zu properties; at most %d are possible",
                         i, count, SERVE_MOST_PROPERTIES);
            return false;
        }
    }
    return true;
}

static bool check_tools(const json_t *tools, serve_problem *problem)
{
    if (!json_is_array(tools) || json_array_size(tools) > SERVE_MOST_TOOLS) {
        serve_refuse(problem, 400, "tools", "tools is not a list of at most %d functions",
                     SERVE_MOST_TOOLS);
        return false;
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i),
                     *function = json_object_get(tool, "function");
        const json_t *parameters = json_object_get(function, "parameters");
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (type == NULL || strcmp(type, "function") != 0 ||
            !serve_is_tool_name(serve_tool_name(tool)) ||
            (parameters != NULL && !json_is_object(parameters))) {
            serve_refuse(
                problem, 400, "tools",
                "tool %zu is not {\"type\": \"function\", \"function\": {\"name\": …, "
                "\"parameters\": {…}}} with a name of 1 to %d letters, digits, '_' and '-'",
                i, SERVE_MOST_TOOL_NAME);
            return false;
        }
    }
    return check_properties(tools, problem);
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
    const json_t *tool = serve_find_tool(r->tools, name);
    if (tool != NULL) {
        r->tool_name = serve_tool_name(tool); /* as long as the tools, which the request keeps */
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
    if (r->tools != NULL && serve_tool_style(server) == CLI_TOOLS_NONE) {
        serve_refuse(problem, 400, "tools",
                     "tools are not supported with the model's chat format; chatml, llama3, "
                     "mistral-v3 and later ones of Mistral, and harmony have them");
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
        cli_text moved = {0};
        cli_text_print(&moved, where);
        cli_text_print(&moved, target + 1);
        json_string_set(member, moved.data);
        cli_text_free(&moved);
    }
}

/* Returns the schema of a tool's arguments, which is in another schema at `place`. */
static json_t *arguments_schema(const json_t *tool, const char *place)
{
    const json_t *parameters = json_object_get(json_object_get(tool, "function"), "parameters");
    json_t *arguments =
        parameters != NULL ? json_deep_copy(parameters) : json_pack("{ss}", "type", "object");
    move_references(arguments, place);
    if (json_object_size(arguments) == 0)
        json_object_set_new(arguments, "type", json_string("object"));
    return arguments;
}

/* Returns whether a required call may be one of this tool. */
static bool may_be_called(const serve_request *r, const json_t *tool)
{
    return r->tool_name == NULL || strcmp(r->tool_name, serve_tool_name(tool)) == 0;
}

/* The schema of a call of one of the tools. */
static json_t *call_schema(const serve_request *r, cli_tool_style s, const char *where)
{
    json_t *calls = json_array();
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *tool = json_array_get(r->tools, i);
        char place[128];
        if (!may_be_called(r, tool))
            continue;
        snprintf(place, sizeof place, "#%s/anyOf/%zu/properties/%s", where, json_array_size(calls),
                 serve_tool_arguments(s));
        json_array_append_new(calls, json_pack("{sss{s{ss}so}s[ss]sb}", "type", "object",
                                               "properties", "name", "const", serve_tool_name(tool),
                                               serve_tool_arguments(s),
                                               arguments_schema(tool, place), "required", "name",
                                               serve_tool_arguments(s), "additionalProperties", 0));
    }
    return json_pack("{so}", "anyOf", calls);
}

static void add_schema(cli_text *out, json_t *schema)
{
    cli_text_print(out, "%json ");
    cli_text_add_json(out, schema);
}

/* Harmony's messages to one of the tools. */
static void add_messages(const serve_request *r, cli_text *out)
{
    bool first = true;
    cli_text_print(out, "(");
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *tool = json_array_get(r->tools, i);
        if (!may_be_called(r, tool))
            continue;
        cli_text_print(out, first ? "\" to=functions." : " | \" to=functions.");
        cli_text_print(out, serve_tool_name(tool));
        cli_text_print(out, "\" <|channel|> \"commentary json\" <|message|> ");
        add_schema(out, arguments_schema(tool, "#"));
        first = false;
    }
    cli_text_print(out, ")");
}

/* A call of one of the tools after [TOOL_CALLS], with an id if `ids`. */
static bool add_named_call(const serve_server *server, const serve_request *r, bool ids,
                           cli_text *out, serve_problem *problem)
{
    static const char *const marks[] = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"};
    char tokens[3][16], args[64];
    for (int i = 0; i < 3; i++) {
        const int32_t id = tsr_tokenizer_find(server->tokenizer, marks[i], strlen(marks[i]));
        snprintf(tokens[i], sizeof tokens[i], "<[%" PRId32 "]>", id);
        if (id >= 0 || (i == 1 && !ids))
            continue;
        serve_refuse(problem, 400, "tools", "tools: there is no token '%s' for a required call",
                     marks[i]);
        return false;
    }
    snprintf(args, sizeof args, "\" %s%s%s ", ids ? tokens[1] : "", ids ? " [a-zA-Z0-9]{9} " : "",
             tokens[2]);
    cli_text_print(out, tokens[0]);
    bool first = true;
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *tool = json_array_get(r->tools, i);
        if (!may_be_called(r, tool))
            continue;
        cli_text_print(out, first ? " (\"" : " | \"");
        cli_text_print(out, serve_tool_name(tool));
        cli_text_print(out, args);
        add_schema(out, arguments_schema(tool, "#"));
        first = false;
    }
    cli_text_print(out, ")");
    return true;
}

bool serve_require_tools(const serve_server *server, serve_request *r, serve_problem *problem)
{
    const cli_tool_style s = serve_tool_style(server);
    char before[INFERENCE_REASONING_GRAMMAR];
    cli_text text = {0};
    if (r->tools == NULL || r->tool_choice != SERVE_TOOLS_REQUIRED)
        return true;
    inference_reasoning_grammar(server->tokenizer, serve_format(server), r->reasoning, before,
                                sizeof before);
    cli_text_print(&text, SERVE_REPLY_RULE " ::= ");
    cli_text_print(&text, before);
    bool good = true;
    if (s == CLI_TOOLS_HARMONY) {
        add_messages(r, &text);
    } else if (cli_tools_name_calls(s)) {
        good = add_named_call(server, r, cli_tools_need_ids(s), &text, problem);
    } else if (s == CLI_TOOLS_MISTRAL) {
        const int32_t mark = tsr_tokenizer_find(server->tokenizer, "[TOOL_CALLS]", 12);
        char token[32] = "";
        if (mark >= 0)
            snprintf(token, sizeof token, "<[%" PRId32 "]> \" \"? ", mark);
        cli_text_print(&text, token);
        add_schema(&text, json_pack("{sss[o]}", "type", "array", "prefixItems",
                                    call_schema(r, s, "/prefixItems/0")));
    } else {
        cli_text_print(&text, s == CLI_TOOLS_HERMES ? "\"<tool_call>\\n\" " : "");
        add_schema(&text, call_schema(r, s, ""));
        cli_text_print(&text, s == CLI_TOOLS_HERMES ? " \"\\n</tool_call>\"" : "");
    }
    cli_text_print(&text, "\n");
    good = good && serve_set_grammar(server, r, &text, "tools", problem);
    cli_text_free(&text);
    return good;
}
