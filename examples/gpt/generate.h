/* Generates a text with the model. */
#ifndef GPT_GENERATE_H
#define GPT_GENERATE_H

#include "model.h"
#include "text.h"

typedef struct gpt_generate_params {
    const int32_t *prompt; /* [prompt_count] */
    int64_t prompt_count;
    int64_t count;      /* tokens to write */
    double temperature; /* 0: always the most likely token */
    int top_k;          /* draw from the most likely tokens only; 0: from all */
    int64_t seed;
} gpt_generate_params;

/* Rank 0 prints the prompt and the text to standard output, token by token. All ranks call it. Each
 * token is drawn from Philox at (seed, its position). Therefore the text is the same for any number
 * of ranks, up to rounding of the logits. */
tsr_status generate(gpt_model *model, const gpt_text *text, const gpt_generate_params *params);

#endif
