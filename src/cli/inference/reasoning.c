/* The reasoning of models that think before they answer, as a part of a grammar. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inference/inference.h"

static int32_t find(const tsr_tokenizer *tokenizer, const char *spelling)
{
    return tsr_tokenizer_find(tokenizer, spelling, strlen(spelling));
}

bool inference_has_reasoning(const tsr_tokenizer *tokenizer, tsr_chat_format format)
{
    return format == TSR_CHAT_HARMONY
               ? find(tokenizer, "<|start|>") >= 0 && find(tokenizer, "<|channel|>") >= 0 &&
                     find(tokenizer, "<|message|>") >= 0 && find(tokenizer, "<|end|>") >= 0
               : format != TSR_CHAT_GEMMA4 && find(tokenizer, "<think>") >= 0 &&
                     find(tokenizer, "</think>") >= 0;
}

void inference_reasoning_grammar(const tsr_tokenizer *tokenizer, tsr_chat_format format,
                                 tsr_chat_reasoning reasoning, char *out, size_t size)
{
    const int32_t think = find(tokenizer, "<think>"), end = find(tokenizer, "</think>");
    *out = '\0';
    if (reasoning == TSR_CHAT_REASONING_NONE || !inference_has_reasoning(tokenizer, format))
        return;
    if (format == TSR_CHAT_HARMONY)
        snprintf(out, size,
                 "(<|channel|> \"analysis\" <|message|> !<|end|>* <|end|> <|start|> "
                 "\"assistant\")? ");
    else if (format == TSR_CHAT_MINIMAX_M2) /* the prompt has begun it */
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
