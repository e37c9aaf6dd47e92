/* What the files about tools share (tools.c, tool_messages.c, tool_types.c, calls.c). */
#ifndef TSR_CLI_SERVE_TOOLS_H
#define TSR_CLI_SERVE_TOOLS_H

#include "cli/lib/tools.h"
#include "cli/serve/serve.h"

#define SERVE_MOST_TOOLS 128
#define SERVE_MOST_TOOL_NAME 64
#define SERVE_MOST_PROPERTIES 4096 /* of a tool's parameters, nested ones included */

/* How a model's format writes calls. */
typedef enum serve_tool_style {
    SERVE_NO_CALLS,
    SERVE_HERMES,      /* <tool_call> and an object (Qwen, Hermes): chatml */
    SERVE_LLAMA,       /* the reply is an object: llama3 */
    SERVE_MISTRAL,     /* [TOOL_CALLS] and a list of objects: mistral-v3 to mistral-v7-tekken */
    SERVE_MISTRAL_V11, /* [TOOL_CALLS]name[CALL_ID]id[ARGS] and the arguments for each call */
    SERVE_MISTRAL_V13, /* the same without ids */
    SERVE_HARMONY      /* a message to the tool, which is its arguments: gpt-oss */
} serve_tool_style;

serve_tool_style serve_tool_style_of(const serve_server *server);
/* Returns whether tokens around the name of each call make it a text of its own, apart from the
 * answer (TSR_TEXT_COMMENTARY). */
bool serve_names_calls(serve_tool_style style);
/* Returns whether the ids of calls have 9 letters and digits, as Mistral's models know them. */
bool serve_has_short_ids(serve_tool_style style);
/* Returns the name of the member of a call that has the arguments. */
const char *serve_tool_arguments(serve_tool_style style);
/* Returns the name of an element of `tools`, or NULL. */
const char *serve_tool_name(const json_t *tool);
/* Returns whether a tool can have this name. NULL is allowed. */
bool serve_is_tool_name(const char *name);
/* Finds an element of `tools` by its name. Returns NULL if there is none. */
const json_t *serve_find_tool(const json_t *tools, const char *name);
/* Appends the tools as gpt-oss's template describes them, a namespace of TypeScript. */
void serve_describe_types(serve_text *text, const json_t *tools);

#endif
