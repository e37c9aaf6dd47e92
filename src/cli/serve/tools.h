/* What the files about tools share (tools.c, tool_messages.c, tool_types.c, calls.c). */
#ifndef TSR_CLI_SERVE_TOOLS_H
#define TSR_CLI_SERVE_TOOLS_H

#include "cli/lib/tools.h"
#include "cli/serve/serve.h"

#define SERVE_MOST_TOOLS 128
#define SERVE_MOST_TOOL_NAME 64
#define SERVE_MOST_PROPERTIES 4096 /* of a tool's parameters, nested ones included */

/* Returns how the model's format writes calls. */
cli_tool_style serve_tool_style(const serve_server *server);
/* Returns the name of the member of a call that has the arguments. */
const char *serve_tool_arguments(cli_tool_style style);
/* Returns the name of an element of `tools`, or NULL. */
const char *serve_tool_name(const json_t *tool);
/* Returns whether a tool can have this name. NULL is allowed. */
bool serve_is_tool_name(const char *name);
/* Finds an element of `tools` by its name. Returns NULL if there is none. */
const json_t *serve_find_tool(const json_t *tools, const char *name);
/* Appends the tools as gpt-oss's template describes them, a namespace of TypeScript. */
void serve_describe_types(cli_text *text, const json_t *tools);

#endif
