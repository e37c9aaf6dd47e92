/* Tools in conversations: how each chat format describes them, and writes calls and results. The
 * texts are those of the models' templates; `serve` makes prompts of them, `finetune` training
 * data. */
#ifndef TSR_CLI_LIB_TOOLS_H
#define TSR_CLI_LIB_TOOLS_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/lib/growing.h"
#include "tessera/chat.h"

/* How a model's format writes calls. */
typedef enum cli_tool_style {
    CLI_TOOLS_NONE,
    CLI_TOOLS_HERMES,      /* <tool_call> and an object (Qwen, Hermes): chatml */
    CLI_TOOLS_LLAMA,       /* the reply is an object, one call at a time: llama3 */
    CLI_TOOLS_MISTRAL,     /* [TOOL_CALLS] and a list of objects: mistral-v3 to mistral-v7-tekken */
    CLI_TOOLS_MISTRAL_V11, /* [TOOL_CALLS]name[CALL_ID]id[ARGS] and the arguments for each call */
    CLI_TOOLS_MISTRAL_V13, /* the same without ids */
    CLI_TOOLS_HARMONY      /* a message to the tool, which is its arguments: gpt-oss */
} cli_tool_style;
cli_tool_style cli_tool_style_of(tsr_chat_format format);
/* Returns whether tokens around the name of each call make it a message and a text of its own
 * (TSR_CHAT_CALLS, TSR_TEXT_COMMENTARY), which are the arguments. tsr_chat_encode writes the name
 * and the id. */
bool cli_tools_name_calls(cli_tool_style style);
/* Returns whether the text before calls is a message of its own, TSR_CHAT_PREAMBLE. */
bool cli_tools_have_preambles(cli_tool_style style);
/* Returns whether a call needs an id, and whether ids have 9 letters and digits, as Mistral's
 * models know them. */
bool cli_tools_need_ids(cli_tool_style style);
bool cli_tools_have_short_ids(cli_tool_style style);

/* Appends JSON with spaces, as templates write it; `indent` spaces for each level, or one line. */
void cli_text_add_spaced(cli_text *text, const json_t *value, size_t indent);

/* The functions below append to messages. Of `tools`, each element is as OpenAI's API has it. Each
 * format describes tools in one place; the other functions append nothing. */

/* Appends the system's message. `given`: its own text, or NULL if there is none. */
void cli_tools_in_system(cli_tool_style style, const json_t *tools, const char *given,
                         cli_text *out);
/* Appends what the first message of the user says about tools in front of its text. */
void cli_tools_in_user(cli_tool_style style, const json_t *tools, cli_text *out);
/* Returns whether tools are a message of their own, TSR_CHAT_TOOLS, a list in one line of
 * cli_text_add_spaced: in front of the user's first message, or of the last one. */
bool cli_tools_before_user(cli_tool_style style, bool is_first, bool is_last);

/* Returns the end of an id, 9 letters and digits, by which Mistral's models know calls. */
const char *cli_tool_short_id(const char *id);
/* Appends call `number` of a message, after the calls before it. `id` may be NULL if the format
 * does not need it. */
void cli_tool_call(cli_tool_style style, size_t number, const char *name, const char *id,
                   const json_t *arguments, cli_text *out);
/* Appends what follows the last call. */
void cli_tool_calls_end(cli_tool_style style, cli_text *out);

/* Returns whether results that follow each other are one message. */
bool cli_tool_results_join(cli_tool_style style);
/* Appends the result of a call, after those before it in the message. `id`: the call's, or NULL. */
void cli_tool_result(cli_tool_style style, const char *id, const char *content, cli_text *out);

#endif
