/* The tokens of drafts: chosen from logits, on the host or on the device. */
#include "base/choice.h"
#include "base/error.h"
#include "gpu/internal.h"
#include "model/generate/draft.h"
#include "model/model.h"

int tsr__drafts_most(const tsr_generator *g, int number, int64_t length, int wanted)
{
    const tsr__sequence *s = &g->sequences[number];
    const int64_t of_text = s->limit - length - 1, of_cache = g->longest - length;
    int64_t most = wanted;
    most = of_text < most ? of_text : most;
    most = of_cache < most ? of_cache : most;
    return most > 0 ? (int)most : 0;
}

void tsr__drafts_begin_text(const tsr_generator *g, tsr__draft_text *text)
{
    const tsr__sequence *s = &g->sequences[text->number];
    text->count = 0;
    text->drawn = g->drafts->probabilities && s->sampling.temperature > 0 && !tsr__limit_changes(s);
}

double *tsr__drafts_probabilities(const tsr_generator *g, int number, int draft)
{
    const tsr__drafts *d = g->drafts;
    return d->probabilities + ((size_t)number * (size_t)d->most + (size_t)draft) *
                                  (size_t)g->model->config->vocabulary;
}

static int32_t most_likely(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

tsr_status tsr__drafts_add(tsr_generator *g, tsr__draft_text *text, const float *logits)
{
    const tsr__sequence *s = &g->sequences[text->number];
    const int64_t vocabulary = g->model->config->vocabulary, at = text->length + text->count;
    int32_t *token = &text->ids[text->count];
    if (!text->drawn)
        *token = most_likely(logits, vocabulary);
    else
        TSR__TRY(tsr__sampling_draft(&s->sampling, s->number, at, vocabulary, logits, at, s->tokens,
                                     tsr__drafts_probabilities(g, text->number, text->count),
                                     token));
    s->tokens[at] = *token; /* the history of the next draft */
    text->count++;
    return TSR_OK;
}

tsr_status tsr__drafts_record_choice(const tsr_model *m, int rows, const tsr_tensor *logits,
                                     const tsr_tensor *results, tsr_tensor **ids)
{
    struct tsr_choice_words choices[TSR__DRAFT_SEQUENCES];
    for (int i = 0; i < rows; i++) {
        TSR__TRY(tsr__sampling_choice(tsr_sampling_params(.temperature = 0), 0, 0, &choices[i]));
        choices[i].seen_row = (uint32_t)i;
    }
    return tsr__generator_record_draw(m, rows, logits, choices, NULL, results, ids);
}

tsr_status tsr__drafts_read_chosen(tsr_tensor *const *chosen, int rows, tsr__draft_text **some,
                                   int most)
{
    for (int t = 0; t < most; t++) {
        void *results;
        TSR__TRY(tsr_tensor_map(chosen[t], &results));
        for (int i = 0; i < rows; i++) {
            const int32_t token = ((const int32_t *)results)[i];
            if (some[i]->count == t && token >= 0)
                some[i]->ids[some[i]->count++] = token;
        }
    }
    return TSR_OK;
}
