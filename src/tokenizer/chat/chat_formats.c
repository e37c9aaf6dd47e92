/* The table of chat formats, and the search for the format that a model's template has. */
#include "tokenizer/chat/chat_formats.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

static const tsr__chat_format formats[TSR_CHAT_FORMATS] = {
    [TSR_CHAT_CHATML] = {.name = "chatml",
                         .system = {"<|im_start|>system\n", "<|im_end|>\n"},
                         .user = {"<|im_start|>user\n", "<|im_end|>\n"},
                         .header = "<|im_start|>assistant\n",
                         .before = "",
                         .end = "<|im_end|>",
                         .after_end = "\n"},
    [TSR_CHAT_LLAMA2] = {.name = "llama2",
                         .needs_bos = true,
                         .strips = true,
                         .system_in_user = true,
                         .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
                         .user = {"[INST] ", " [/INST]"},
                         .header = "",
                         .before = " ",
                         .end = " \2",
                         .after_end = "\1"},
    [TSR_CHAT_LLAMA3] = {.name = "llama3",
                         .needs_bos = true,
                         .strips = true,
                         .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
                         .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
                         .header = "<|start_header_id|>assistant<|end_header_id|>\n\n",
                         .before = "",
                         .end = "<|eot_id|>",
                         .after_end = ""},
    [TSR_CHAT_MISTRAL] = {.name = "mistral",
                          .needs_bos = true,
                          .system_in_user = true,
                          .system = {"", "\n\n"},
                          .user = {"[INST] ", " [/INST]"},
                          .header = "",
                          .before = "",
                          .end = "\2",
                          .after_end = ""},
    [TSR_CHAT_MISTRAL_V1] = {.name = "mistral-v1",
                             .needs_bos = true,
                             .system_in_user = true,
                             .system = {"", "\n\n"},
                             .user = {" [INST] ", " [/INST]"},
                             .header = "",
                             .before = " ",
                             .end = "\2",
                             .after_end = ""},
    [TSR_CHAT_MISTRAL_V3] = {.name = "mistral-v3",
                             .needs_bos = true,
                             .system_in_user = true,
                             .system = {"", "\n\n"},
                             .user = {"[INST] ", "[/INST]"},
                             .header = "",
                             .before = " ",
                             .end = "\2",
                             .after_end = ""},
    [TSR_CHAT_MISTRAL_TEKKEN] = {.name = "mistral-tekken",
                                 .needs_bos = true,
                                 .system_in_user = true,
                                 .system = {"", "\n\n"},
                                 .user = {"[INST]", "[/INST]"},
                                 .header = "",
                                 .before = "",
                                 .end = "\2",
                                 .after_end = ""},
    [TSR_CHAT_MISTRAL_V7] = {.name = "mistral-v7",
                             .needs_bos = true,
                             .system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"},
                             .user = {"[INST] ", "[/INST]"},
                             .header = "",
                             .before = " ",
                             .end = "\2",
                             .after_end = ""},
    [TSR_CHAT_MISTRAL_V7_TEKKEN] = {.name = "mistral-v7-tekken",
                                    .needs_bos = true,
                                    .system = {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
                                    .user = {"[INST]", "[/INST]"},
                                    .header = "",
                                    .before = "",
                                    .end = "\2",
                                    .after_end = ""},
    [TSR_CHAT_ZEPHYR] = {.name = "zephyr",
                         .system = {"<|system|>\n", "\2\n"},
                         .user = {"<|user|>\n", "\2\n"},
                         .header = "<|assistant|>\n",
                         .before = "",
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
                           .needs_bos = true,
                           .system = {"", ""},
                           .user = {"<｜User｜>", ""},
                           .header = "<｜Assistant｜>",
                           .before = "",
                           .end = "\2",
                           .after_end = ""},
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
    char names[256] = "";
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
 * the spaces around [INST]. */
static tsr_chat_format find_instruct(const char *template)
{
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

static tsr_chat_format find_format(const char *template)
{
    /* Phi 4 has <|im_sep|> between the role and the text. No format of the table has this. */
    if (strstr(template, "<|im_start|>") != NULL)
        return strstr(template, "<|im_sep|>") == NULL ? TSR_CHAT_CHATML : TSR_CHAT_MODEL;
    if (strstr(template, "<|start_header_id|>") != NULL)
        return TSR_CHAT_LLAMA3;
    if (strstr(template, "[INST]") != NULL)
        return find_instruct(template);
    if (strstr(template, "<｜User｜>") != NULL && strstr(template, "<｜Assistant｜>") != NULL)
        return TSR_CHAT_DEEPSEEK;
    if (user_ends_by_eos(template))
        return TSR_CHAT_ZEPHYR;
    if (strstr(template, "USER:") != NULL && strstr(template, "ASSISTANT:") != NULL)
        return TSR_CHAT_VICUNA;
    return TSR_CHAT_MODEL;
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
