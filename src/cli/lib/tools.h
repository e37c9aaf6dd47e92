/* Tools in conversations: how each chat format describes them, and writes calls and results. The
 * texts are those of the models' templates; `serve` makes prompts of them, `finetune` training
 * data. Calls: chatml has <tool_call> and an object (Qwen, Hermes), llama3 an object in place of a
 * reply, mistral-v3 to mistral-v7-tekken a list of objects. Calls of other formats are messages of
 * their own, which tsr_chat_encode writes. */
#ifndef TSR_CLI_LIB_TOOLS_H
#define TSR_CLI_LIB_TOOLS_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/lib/growing.h"
#include "tessera/chat.h"

/* Appends JSON with spaces, as templates write it; `indent` spaces for each level, or one line. */
void cli_text_add_spaced(cli_text *text, const json_t *value, size_t indent);

/* The functions below append to messages. Of `tools`, each element is as OpenAI's API has it. Each
 * format describes tools in one place; the other functions append nothing. */

/* Appends the system's message. `given`: its own text, or NULL if there is none. */
void cli_tools_in_system(tsr_chat_format format, const json_t *tools, const char *given,
                         cli_text *out);
/* Appends what the first message of the user says about tools in front of its text. */
void cli_tools_in_user(tsr_chat_format format, const json_t *tools, cli_text *out);
/* Returns whether tools are a message of their own, in front of the user's last one (of
 * mistral-v13-tekken, the first one): a list in one line of cli_text_add_spaced. */
bool cli_tools_as_message(tsr_chat_format format);

/* Returns the end of an id, 9 letters and digits, by which Mistral's models know calls. */
const char *cli_tool_short_id(const char *id);
/* Appends call `number` of a message, after the calls before it. `id` may be NULL if the format
 * does not have it (all but Mistral's). */
void cli_tool_call(tsr_chat_format format, size_t number, const char *name, const char *id,
                   const json_t *arguments, cli_text *out);
/* Appends what follows the last call. */
void cli_tool_calls_end(tsr_chat_format format, cli_text *out);

/* Returns whether results that follow each other are one message. */
bool cli_tool_results_join(tsr_chat_format format);
/* Appends the result of a call, after those before it in the message. `id`: the call's, or NULL. */
void cli_tool_result(tsr_chat_format format, const char *id, const char *content, cli_text *out);

#endif
