/* The reasoning of models that think before they answer, as a part of a grammar. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inference/inference.h"

static int32_t find(const tsr_tokenizer *tokenizer, const char *spelling)
{
    return tsr_tokenizer_find(tokenizer, spelling, strlen(spelling));
}

/* Finds the tokens around the reasoning. Returns false if there are none. */
static bool find_marks(const tsr_tokenizer *tokenizer, tsr_chat_format format, int32_t *begin,
                       int32_t *end)
{
    static const char *const marks[][2] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        *begin = find(tokenizer, marks[i][0]);
        *end = find(tokenizer, marks[i][1]);
        if (*begin >= 0 && *end >= 0)
            return format != TSR_CHAT_GEMMA4;
    }
    return false;
}

bool inference_has_reasoning(const tsr_tokenizer *tokenizer, tsr_chat_format format)
{
    int32_t begin, end;
    return format == TSR_CHAT_HARMONY
               ? find(tokenizer, "<|start|>") >= 0 && find(tokenizer, "<|channel|>") >= 0 &&
                     find(tokenizer, "<|message|>") >= 0 && find(tokenizer, "<|end|>") >= 0
               : find_marks(tokenizer, format, &begin, &end);
}

/* Returns whether the prompt begins the reasoning, so that a reply goes on with it. */
static bool prompt_thinks(const tsr_tokenizer *tokenizer, tsr_chat_format format,
                          tsr_chat_reasoning reasoning, int32_t begin, int32_t end)
{
    tsr_chat_message message = TSR_INIT(tsr_chat_message);
    int32_t *ids = NULL;
    uint64_t count = 0;
    bool thinks = false;
    message.role = TSR_CHAT_USER;
    if (tsr_chat_encode(tokenizer,
                        tsr_chat_params(.format = format, .messages = &message, .count = 1,
                                        .begin_reply = true, .reasoning = reasoning),
                        &ids, &count) != TSR_OK)
        return false; /* which is an error for each request, too */
    for (uint64_t i = 0; i < count; i++)
        thinks = ids[i] == begin || (thinks && ids[i] != end);
    tsr_tokenizer_free_ids(&ids);
    return thinks;
}

void inference_reasoning_grammar(const tsr_tokenizer *tokenizer, tsr_chat_format format,
                                 tsr_chat_reasoning reasoning, char *out, size_t size)
{
    int32_t think = -1, end = -1;
    *out = '\0';
    if (reasoning == TSR_CHAT_REASONING_NONE || !inference_has_reasoning(tokenizer, format))
        return;
    (void)find_marks(tokenizer, format, &think, &end);
    if (format == TSR_CHAT_HARMONY)
        snprintf(out, size,
                 "(<|channel|> \"analysis\" <|message|> !<|end|>* <|end|> <|start|> "
                 "\"assistant\")? ");
    else if (prompt_thinks(tokenizer, format, reasoning, think, end))
        snprintf(out, size, "!<[%" PRId32 "]>* <[%" PRId32 "]> \"\\n\"{0,2} ", end, end);
    else
        snprintf(out, size, "%s(<[%" PRId32 "]> !<[%" PRId32 "]>* <[%" PRId32 "]> \"\\n\"{0,2})? ",
                 format == TSR_CHAT_GLM45 ? "\"\\n\"? " : "", think, end, end);
}

void inference_answer_grammar(const tsr_tokenizer *tokenizer, tsr_chat_format format,
                              tsr_chat_reasoning reasoning, char *out, size_t size)
{
    inference_reasoning_grammar(tokenizer, format, reasoning, out, size);
    if (*out != '\0' && format == TSR_CHAT_HARMONY)
        snprintf(out + strlen(out), size - strlen(out), "<|channel|> \"final\" <|message|> ");
}
