#include "rng/mlx_words.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/instruction_sets.h"
#include "rng/rng.h"
#include "rng/threefry_loops.h"

static const void *const instruction_sets[TSR__INSTRUCTION_SETS] =
    TSR__INSTRUCTION_SET_TABLES(tsr__threefry_loops_);

tsr_status tsr__mlx_words_check(uint64_t count)
{
    TSR__REQUIRE(count <= TSR__MAX_THREEFRY_WORDS,
                 "threefry: %" PRIu64 " words are more than 32-bit counters reach, %" PRIu64, count,
                 TSR__MAX_THREEFRY_WORDS);
    return TSR_OK;
}

tsr__mlx_words tsr__mlx_words_of(tsr_threefry_key key, uint64_t count)
{
    return (tsr__mlx_words){key, count, count / 2, count % 2};
}

/* Each counter gives two words, one in the first half of all words and one in the second half.
 * Returns the distance between the positions of the two words. If the number of words is odd, the
 * middle word is the only word of its counter. */
static uint64_t distance_of(const tsr__mlx_words *words)
{
    return words->half + words->odd;
}

uint32_t tsr__mlx_word(const tsr__mlx_words *words, uint64_t i)
{
    uint64_t distance = distance_of(words);
    uint64_t first = i < distance ? i : i - distance;
    uint64_t second = first < words->half ? first + distance : 0;
    uint32_t out[2];
    tsr__threefry_hash(words->key, (uint32_t[]){(uint32_t)first, (uint32_t)second}, out);
    return out[i < distance ? 0 : 1];
}

static void each(const tsr__mlx_words *words, const tsr__threefry_loops *loops,
                 tsr__mlx_take_fn *take, void *user)
{
    enum { RUN = 1024 };
    uint32_t low[RUN], high[RUN];
    uint64_t distance = distance_of(words);
    for (uint64_t first = 0; first < words->half; first += RUN) {
        size_t count = (size_t)tsr__min_u64(RUN, words->half - first);
        loops->pairs(words->key, (uint32_t)first, (uint32_t)(first + distance), count, low, high);
        take(user, first, low, count);
        take(user, first + distance, high, count);
    }
    if (words->odd != 0) {
        low[0] = tsr__mlx_word(words, words->half);
        take(user, words->half, low, 1);
    }
}

void tsr__mlx_words_each(const tsr__mlx_words *words, tsr__mlx_take_fn *take, void *user)
{
    each(words, tsr__instruction_set_best(instruction_sets), take, user);
}

bool tsr__mlx_words_each_at(const tsr__mlx_words *words, int instruction_set,
                            tsr__mlx_take_fn *take, void *user)
{
    const tsr__threefry_loops *loops = tsr__instruction_set_at(instruction_sets, instruction_set);
    if (loops != NULL)
        each(words, loops, take, user);
    return loops != NULL;
}
