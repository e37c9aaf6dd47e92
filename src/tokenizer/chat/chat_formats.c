/* The table of chat formats, and the search for the format that a model's template has. */
#include "tokenizer/chat/chat_formats.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

/* What Mistral's formats have in common since version 7 of the tokenizer. */
#define MISTRAL_TEKKEN_MESSAGES                                                                    \
    .bos = "\1", .system = {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, .user = {"[INST]", "[/INST]"}, \
    .end = "\2", .after_end = ""
/* The tools and calls of those that name each call by tokens. */
#define MISTRAL_NAMED_CALLS                                                                        \
    .tools = {"[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"}, .calls = "[TOOL_CALLS]",                 \
    .several_calls = true, .result = {"[TOOL_RESULTS]", "[/TOOL_RESULTS]"}

static const tsr__chat_format formats[TSR_CHAT_FORMATS] = {
    [TSR_CHAT_CHATML] = {.name = "chatml",
                         .system = {"<|im_start|>system\n", "<|im_end|>\n"},
                         .user = {"<|im_start|>user\n", "<|im_end|>\n"},
                         .header = "<|im_start|>assistant\n",
                         .answer = "<think>\n\n</think>\n\n",
                         .end = "<|im_end|>",
                         .after_end = "\n",
                         .calls = "",
                         .result = {"<|im_start|>user\n", "<|im_end|>\n"},
                         .reasoning = {"<think>\n", "\n</think>\n\n"},
                         .one_header = true},
    [TSR_CHAT_LLAMA2] = {.name = "llama2",
                         .bos = "\1",
                         .strips = true,
                         .strips_system = true,
                         .system_in_user = true,
                         .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
                         .user = {"[INST] ", " [/INST]"},
                         .before = " ",
                         .end = " \2",
                         .after_end = "\1"},
    [TSR_CHAT_LLAMA3] = {.name = "llama3",
                         .bos = "\1",
                         .strips = true,
                         .strips_system = true,
                         .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
                         .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
                         .header = "<|start_header_id|>assistant<|end_header_id|>\n\n",
                         .end = "<|eot_id|>",
                         .after_end = "",
                         .calls = "",
                         .result = {"<|start_header_id|>ipython<|end_header_id|>\n\n",
                                    "<|eot_id|>"}},
    [TSR_CHAT_MISTRAL] = {.name = "mistral",
                          .bos = "\1",
                          .system_in_user = true,
                          .system = {"", "\n\n"},
                          .user = {"[INST] ", " [/INST]"},
                          .end = "\2",
                          .after_end = ""},
    [TSR_CHAT_MISTRAL_V1] = {.name = "mistral-v1",
                             .bos = "\1",
                             .system_in_user = true,
                             .system = {"", "\n\n"},
                             .user = {" [INST] ", " [/INST]"},
                             .before = " ",
                             .end = "\2",
                             .after_end = ""},
    [TSR_CHAT_MISTRAL_V3] = {.name = "mistral-v3",
                             .bos = "\1",
                             .system_in_user = true,
                             .system = {"", "\n\n"},
                             .user = {"[INST] ", "[/INST]"},
                             .before = " ",
                             .end = "\2",
                             .after_end = "",
                             .tools = {"[AVAILABLE_TOOLS] ", "[/AVAILABLE_TOOLS]"},
                             .calls = "[TOOL_CALLS] ",
                             .result = {"[TOOL_RESULTS] ", "[/TOOL_RESULTS]"}},
    [TSR_CHAT_MISTRAL_TEKKEN] = {.name = "mistral-tekken",
                                 .bos = "\1",
                                 .system_in_user = true,
                                 .system = {"", "\n\n"},
                                 .user = {"[INST]", "[/INST]"},
                                 .end = "\2",
                                 .after_end = "",
                                 .tools = {"[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"},
                                 .calls = "[TOOL_CALLS]",
                                 .result = {"[TOOL_RESULTS]", "[/TOOL_RESULTS]"}},
    [TSR_CHAT_MISTRAL_V7] = {.name = "mistral-v7",
                             .bos = "\1",
                             .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"},
                             .user = {"[INST] ", "[/INST]"},
                             .before = " ",
                             .end = "\2",
                             .after_end = "",
                             .tools = {"[AVAILABLE_TOOLS] ", "[/AVAILABLE_TOOLS]"},
                             .calls = "[TOOL_CALLS] ",
                             .result = {"[TOOL_RESULTS] ", "[/TOOL_RESULTS]"}},
    [TSR_CHAT_MISTRAL_V7_TEKKEN] = {MISTRAL_TEKKEN_MESSAGES, .name = "mistral-v7-tekken",
                                    .tools = {"[AVAILABLE_TOOLS] ", "[/AVAILABLE_TOOLS]"},
                                    .calls = "[TOOL_CALLS] ",
                                    .result = {"[TOOL_RESULTS] ", "[/TOOL_RESULTS]"}},
    [TSR_CHAT_ZEPHYR] = {.name = "zephyr",
                         .system = {"<|system|>\n", "\2\n"},
                         .user = {"<|user|>\n", "\2\n"},
                         .header = "<|assistant|>\n",
                         .end = "\2",
                         .after_end = "\n"},
    [TSR_CHAT_VICUNA] = {.name = "vicuna",
                         .system = {"", "\n\n"},
                         .user = {"USER: ", "\n"},
                         .header = "ASSISTANT:",
                         .before = " ",
                         .end = "\2",
                         .after_end = "\n"},
    [TSR_CHAT_DEEPSEEK] = {.name = "deepseek",
                           .bos = "\1",
                           .system = {"", ""},
                           .user = {"<｜User｜>", ""},
                           .header = "<｜Assistant｜>",
                           .answer = "<think>\n\n</think>\n\n",
                           .end = "\2",
                           .after_end = ""},
    [TSR_CHAT_GEMMA] = {.name = "gemma",
                        .bos = "\1",
                        .strips = true,
                        .system_in_user = true,
                        .system = {"", "\n\n"},
                        .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
                        .header = "<start_of_turn>model\n",
                        .end = "<end_of_turn>",
                        .after_end = "\n"},
    [TSR_CHAT_GEMMA4] = {.name = "gemma4",
                         .bos = "\1",
                         .strips = true,
                         .strips_system = true,
                         .system = {"<|turn>system\n", "<turn|>\n"},
                         .user = {"<|turn>user\n", "<turn|>\n"},
                         .header = "<|turn>model\n",
                         .begin = "<|channel>thought\n<channel|>",
                         .end = "<turn|>",
                         .after_end = "\n"},
    [TSR_CHAT_PHI3] = {.name = "phi3",
                       .system = {"<|system|>\n", "<|end|>\n"},
                       .user = {"<|user|>\n", "<|end|>\n"},
                       .header = "<|assistant|>\n",
                       .end = "<|end|>",
                       .after_end = "\n"},
    [TSR_CHAT_PHI4] = {.name = "phi4",
                       .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
                       .user = {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
                       .header = "<|im_start|>assistant<|im_sep|>",
                       .end = "<|im_end|>",
                       .after_end = ""},
    [TSR_CHAT_PHI4_MINI] = {.name = "phi4-mini",
                            .system = {"<|system|>", "<|end|>"},
                            .user = {"<|user|>", "<|end|>"},
                            .header = "<|assistant|>",
                            .end = "<|end|>",
                            .after_end = ""},
    [TSR_CHAT_GRANITE] = {.name = "granite",
                          .system = {"<|start_of_role|>system<|end_of_role|>", "\2\n"},
                          .user = {"<|start_of_role|>user<|end_of_role|>", "\2\n"},
                          .header = "<|start_of_role|>assistant<|end_of_role|>",
                          .end = "\2",
                          .after_end = "\n"},
    [TSR_CHAT_OLMO2] = {.name = "olmo2",
                        .bos = "\1",
                        .system = {"<|system|>\n", "\n"},
                        .user = {"<|user|>\n", "\n"},
                        .header = "<|assistant|>\n",
                        .end = "\2",
                        .after_end = "\n"},
    [TSR_CHAT_GLM4] = {.name = "glm4",
                       .bos = "[gMASK]<sop>",
                       .system = {"<|system|>\n", ""},
                       .user = {"<|user|>\n", ""},
                       .header = "<|assistant|>",
                       .begin = "\n",
                       .before = "\n",
                       .end = "<|user|>"},
    [TSR_CHAT_GLM45] = {.name = "glm4.5",
                        .bos = "[gMASK]<sop>",
                        .system = {"<|system|>\n", ""},
                        .user = {"<|user|>\n", ""},
                        .header = "<|assistant|>",
                        .answer = "\n<think></think>\n",
                        .before = "\n<think></think>\n",
                        .end = "<|user|>"},
    [TSR_CHAT_MINIMAX_M2] = {.name = "minimax-m2",
                             .bos = "]~!b[",
                             .system = {"]~b]system\n", "[e~[\n"},
                             .user = {"]~b]user\n", "[e~[\n"},
                             .header = "]~b]ai\n",
                             .begin = "<think>\n",
                             .answer = "<think>\n\n</think>\n\n",
                             .end = "[e~[",
                             .after_end = "\n"},
    [TSR_CHAT_HARMONY] = {.name = "harmony",
                          .introduction = {"<|start|>system<|message|>You are ChatGPT, a large "
                                           "language model trained by OpenAI.\n"
                                           "Knowledge cutoff: 2024-06\n\nReasoning: ",
                                           "\n\n# Valid channels: analysis, commentary, final. "
                                           "Channel must be included for every message.",
                                           "\nCalls to these tools must go to the commentary "
                                           "channel: 'functions'.",
                                           "<|end|>"},
                          .efforts = true,
                          .system = {"<|start|>developer<|message|># Instructions\n\n",
                                     "\n\n<|end|>"},
                          .user = {"<|start|>user<|message|>", "<|end|>"},
                          .header = "<|start|>assistant",
                          .answer = "<|channel|>final<|message|>",
                          .before = "<|channel|>final<|message|>",
                          .end = "<|end|>",
                          .after_end = "",
                          .tools = {"<|start|>developer<|message|>", "<|end|>"},
                          .calls = " to=functions.",
                          .call_name = "<|channel|>commentary json<|message|>",
                          .call_end = "<|call|>",
                          .result = {"<|start|>functions.", "<|end|>"},
                          .result_name = " to=assistant<|channel|>commentary<|message|>",
                          .tools_replace_system = true,
                          .reasoning = {"<|channel|>analysis<|message|>", "<|end|>"},
                          .preamble = {"<|channel|>commentary<|message|>", "<|end|>"}},
    [TSR_CHAT_MISTRAL_V11_TEKKEN] = {MISTRAL_TEKKEN_MESSAGES, MISTRAL_NAMED_CALLS,
                                     .name = "mistral-v11-tekken", .call_name = "[CALL_ID]",
                                     .call_id = "[ARGS]", .result_id = "[TOOL_CONTENT]"},
    [TSR_CHAT_MISTRAL_V13_TEKKEN] = {MISTRAL_TEKKEN_MESSAGES, MISTRAL_NAMED_CALLS,
                                     .name = "mistral-v13-tekken", .call_name = "[ARGS]",
                                     .reasoning = {"[THINK]", "[/THINK]"}, .preamble = {"", ""},
                                     .one_header = true},
};

const tsr__chat_format *tsr__chat_format_get(tsr_chat_format format)
{
    const int index = (int)format;
    return index > 0 && index < TSR_CHAT_FORMATS ? &formats[index] : NULL;
}

const char *tsr_chat_format_name(tsr_chat_format format)
{
    const tsr__chat_format *found = tsr__chat_format_get(format);
    return found != NULL ? found->name : format == TSR_CHAT_MODEL ? "model" : "?";
}

tsr_status tsr_chat_format_parse(const char *name, tsr_chat_format *out)
{
    char names[512] = "";
    TSR__REQUIRE(name != NULL && out != NULL, "chat: %s is NULL", name == NULL ? "name" : "out");
    for (int i = 1; i < TSR_CHAT_FORMATS; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            *out = (tsr_chat_format)i;
            return TSR_OK;
        }
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i > 1 ? ", " : "",
                 formats[i].name);
    }
    return tsr__fail(TSR_ERR_INVALID, "chat: there is no format '%.40s'; formats: %s", name, names);
}

/* Templates ------------------------------------------------------------------------------------ */

/* Finds the format of a template that contains [INST]. The formats of Mistral's models differ by
 * the spaces around [INST], and by the tokens of their calls. */
static tsr_chat_format find_instruct(const char *template)
{
    if (strstr(template, "[ARGS]") != NULL)
        return strstr(template, "[CALL_ID]") != NULL ? TSR_CHAT_MISTRAL_V11_TEKKEN
                                                     : TSR_CHAT_MISTRAL_V13_TEKKEN;
    if (strstr(template, "[SYSTEM_PROMPT]") != NULL)
        return strstr(template, "[SYSTEM_PROMPT] ") != NULL ? TSR_CHAT_MISTRAL_V7
                                                            : TSR_CHAT_MISTRAL_V7_TEKKEN;
    if (strstr(template, "<<SYS>>") != NULL)
        return TSR_CHAT_LLAMA2;
    if (strstr(template, " [INST]") != NULL)
        return TSR_CHAT_MISTRAL_V1;
    /* Mistral's templates for calls of tools exist since version 3 of its tokenizer. */
    if (strstr(template, "[AVAILABLE_TOOLS]") == NULL)
        return TSR_CHAT_MISTRAL;
    return strstr(template, "[INST] ") != NULL ? TSR_CHAT_MISTRAL_V3 : TSR_CHAT_MISTRAL_TEKKEN;
}

/* Returns whether the user's messages end with EOS, as in Zephyr. Phi 3 ends messages with a token
 * of its own instead, and Falcon 3 ends the user's with a line break. */
static bool user_ends_by_eos(const char *template)
{
    const char *user = strstr(template, "<|user|>");
    if (user == NULL)
        return false;
    const char *eos = strstr(user, "eos_token"), *next = strstr(user + 1, "<|");
    return eos != NULL && (next == NULL || eos < next);
}

/* Returns whether `template` has both strings. */
static bool has_both(const char *template, const char *one, const char *other)
{
    return strstr(template, one) != NULL && strstr(template, other) != NULL;
}

/* Finds the format of a template that contains <|assistant|>. */
static tsr_chat_format find_by_assistant(const char *template)
{
    if (strstr(template, "[gMASK]<sop>") != NULL)
        return strstr(template, "<think>") != NULL ? TSR_CHAT_GLM45 : TSR_CHAT_GLM4;
    if (strstr(template, "<|end|>") != NULL)
        return strstr(template, "<|/tool|>") != NULL ? TSR_CHAT_PHI4_MINI : TSR_CHAT_PHI3;
    if (user_ends_by_eos(template))
        return TSR_CHAT_ZEPHYR;
    /* Falcon 3 has OLMo's messages, but no BOS. */
    return has_both(template, "bos_token", "eos_token") ? TSR_CHAT_OLMO2 : TSR_CHAT_MODEL;
}

static tsr_chat_format find_format(const char *template)
{
    /* The formats with a string that no other format has. The first one found counts. */
    static const struct {
        const char *string;
        tsr_chat_format format;
    } marks[] = {
        {"<|im_sep|>", TSR_CHAT_PHI4},
        {"<|im_start|>", TSR_CHAT_CHATML},
        {"<|start_header_id|>", TSR_CHAT_LLAMA3},
        {"<|channel|>", TSR_CHAT_HARMONY},
        {"<|start_of_role|>", TSR_CHAT_GRANITE},
        {"<start_of_turn>", TSR_CHAT_GEMMA},
        {"<|turn>", TSR_CHAT_GEMMA4},
        {"]~b]", TSR_CHAT_MINIMAX_M2},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (strstr(template, marks[i].string) != NULL)
            return marks[i].format;
    if (strstr(template, "[INST]") != NULL)
        return find_instruct(template);
    if (has_both(template, "<｜User｜>", "<｜Assistant｜>"))
        return TSR_CHAT_DEEPSEEK;
    if (strstr(template, "<|assistant|>") != NULL || user_ends_by_eos(template))
        return find_by_assistant(template);
    return has_both(template, "USER:", "ASSISTANT:") ? TSR_CHAT_VICUNA : TSR_CHAT_MODEL;
}

/* Returns where one of two strings comes last in a text, or NULL. */
static const char *find_last(const char *text, const char *one, const char *other)
{
    const char *last = NULL;
    for (int i = 0; i < 2; i++)
        for (const char *at = text; (at = strstr(at, i == 0 ? one : other)) != NULL; at++)
            last = last == NULL || at > last ? at : last;
    return last;
}

/* What begins a reply follows the last "add_generation_prompt", in quotes. Templates that may write
 * both <think> and an empty reasoning write their default in the last branch. */
tsr__chat_begin tsr__chat_template_begin(const char *template)
{
    static const char mark[] = "add_generation_prompt";
    const char *prompt = template != NULL ? find_last(template, mark, mark) : NULL;
    if (prompt == NULL)
        return TSR__CHAT_BEGIN_HEADER;
    const char *open = find_last(prompt, "<think>\\n'", "<think>\\n\""),
               *empty = find_last(prompt, "<think>\\n\\n</think>", "<think></think>");
    return open == NULL                    ? TSR__CHAT_BEGIN_HEADER
           : empty != NULL && empty > open ? TSR__CHAT_BEGIN_MAY_THINK
                                           : TSR__CHAT_BEGIN_THINKS;
}

tsr_status tsr_chat_format_of(const tsr_tokenizer *tokenizer, tsr_chat_format *out)
{
    TSR__REQUIRE(tokenizer != NULL && out != NULL, "chat: %s is NULL",
                 tokenizer == NULL ? "the tokenizer" : "out");
    if (tokenizer->chat_template == NULL)
        return tsr__fail(TSR_ERR_NOT_FOUND, "chat: the model's files have no chat template; "
                                            "choose a format by its name");
    const tsr_chat_format found = find_format(tokenizer->chat_template);
    if (found == TSR_CHAT_MODEL) {
        char shown[TSR__SPELLING_TEXT];
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "chat: the model's chat template, which begins with %s, is of no known "
            "format; choose one by its name",
            tsr__spelling_text(tokenizer->chat_template, strlen(tokenizer->chat_template), shown));
    }
    *out = found;
    return TSR_OK;
}
