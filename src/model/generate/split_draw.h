/* Draws by several ranks, each of which has the logits of a part of the vocabulary. They choose the
 * same tokens as tsr_sampling_draw does from all logits, and exchange only
 *
 *   candidates  the largest logits of each rank, in descending order, and of equal ones the lowest
 *               ids first;
 *   sums        the sum of the weights of each rank's tokens (shaders/params/choose.h), if tokens
 *               that are no candidates can be drawn. Weights depend on the largest logit of all
 *               ranks, so sums follow candidates in a second exchange.
 *
 * Sums are integers, so the rank on whose tokens a random number falls is known exactly, and that
 * rank finds the token alone. */
#ifndef TSR_MODEL_GENERATE_SPLIT_DRAW_H
#define TSR_MODEL_GENERATE_SPLIT_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/choice.h"
#include "base/error.h"
#include "tessera/generator.h"

#define TSR__SPLIT_MOST_TOP_K 64
#define TSR__SPLIT_MOST (TSR__SPLIT_MOST_TOP_K + 1) /* the most candidates of a rank */

typedef enum tsr__split_kind {
    TSR__SPLIT_GATHER,     /* all logits are needed */
    TSR__SPLIT_CANDIDATES, /* candidates only */
    TSR__SPLIT_SUMS,       /* the largest logits and sums; one rank finds the token */
    TSR__SPLIT_NUCLEUS     /* candidates and sums, for top_p without top_k */
} tsr__split_kind;

/* A missing candidate has the logit −inf. */
typedef struct tsr__candidate {
    float logit;
    int32_t token;
} tsr__candidate;

/* One row of logits, and what the ranks have exchanged about it. */
typedef struct tsr__split_row {
    tsr__split_kind kind;
    const tsr_sampling_params *params;
    struct tsr_choice_words words;
    int ranks;
    const int64_t *parts; /* [ranks]: the number of each rank's tokens */
    int64_t most;         /* candidates of each rank */
    const tsr__candidate *candidates;
    int64_t stride;       /* from one rank's candidates to the next one's */
    const uint64_t *sums; /* NULL: not exchanged */
    int64_t sums_stride;
} tsr__split_row;

/* Returns what ranks must exchange for a draw, and sets *most to the number of candidates. The
 * params must have been checked. If they change logits (tsr__sampling_changes), each rank changes
 * its own ones first. */
tsr__split_kind tsr__split_kind_of(const tsr_sampling_params *params, int64_t *most);
/* Lists a rank's candidates, list[most], from its logits of tokens first, first + 1, … */
void tsr__split_list(int64_t count, const float *logits, int32_t first, int64_t most,
                     tsr__candidate *list);
/* Returns false if the candidates show that all logits are needed: because tokens that top_k keeps
 * may be missing, or to report logits of which no token can be drawn. */
bool tsr__split_suffices(const tsr__split_row *row);
/* Returns the sum of the weights of a rank's tokens. The row's candidates must suffice. */
uint64_t tsr__split_sum(const tsr__split_row *row, int64_t count, const float *logits);
/* Sets *rank to the rank whose tokens contain the drawn one, and *place to where it is in the sum
 * of their weights. For TSR__SPLIT_SUMS. */
void tsr__split_find_rank(const tsr__split_row *row, int *rank, uint64_t *place);
/* Returns which of a rank's tokens is at this place of the sum of their weights. */
int32_t tsr__split_find_token(const tsr__split_row *row, int64_t count, const float *logits,
                              uint64_t place);
/* Chooses the token of a row. For TSR__SPLIT_CANDIDATES, and for TSR__SPLIT_NUCLEUS after the
 * exchange of sums. *token is -1 if top_p may keep tokens that are no candidates; all logits are
 * then needed. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__split_choose(const tsr__split_row *row, int32_t *token) TSR_NODISCARD;

#endif
